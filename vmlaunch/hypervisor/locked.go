package hypervisor

import (
	"fmt"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// mayLock lets the VM's QEMU lock size bytes more, if the VM has PCI devices of the node. The
// kernel (VFIO) locks all memory that such a VM has, also the shared memory that is plugged in
// later. libvirt allows QEMU to lock the VM's own memory and 1 GiB
// (qemuDomainGetMemLockLimitBytes); QEMU ends when the kernel refuses more.
func (d *Domain) mayLock(size int64) error {
	now, err := d.definition()
	if err != nil || len(now.Devices.Hostdevs) == 0 {
		return err
	}
	dir, err := d.Process()
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(filepath.Base(dir))
	if err != nil || !d.IsProcess(pid) {
		return fmt.Errorf("process %s is not its QEMU", filepath.Base(dir))
	}
	return raiseLocked(pid, uint64(size))
}

// raiseLocked raises both limits of a process on locked memory by so many bytes.
func raiseLocked(pid int, by uint64) error {
	var limit unix.Rlimit
	if err := unix.Prlimit(pid, unix.RLIMIT_MEMLOCK, nil, &limit); err != nil {
		return fmt.Errorf("read how much memory process %d may lock: %w", pid, err)
	}
	more := raised(limit, by)
	if err := unix.Prlimit(pid, unix.RLIMIT_MEMLOCK, &more, nil); err != nil {
		return fmt.Errorf("let process %d lock %d bytes of memory: %w", pid, more.Cur, err)
	}
	return nil
}

// raised adds to both limits. What is unlimited stays so.
func raised(l unix.Rlimit, by uint64) unix.Rlimit {
	add := func(n uint64) uint64 { return n + min(by, unix.RLIM_INFINITY-n) }
	return unix.Rlimit{Cur: add(l.Cur), Max: add(l.Max)}
}
