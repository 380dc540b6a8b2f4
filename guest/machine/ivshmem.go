package machine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/slurm-v/slurm-v/guest"
)

// ivshmemDevices finds the devices through which VMs share memory.
type ivshmemDevices struct{ *system }

// offer gives the job's owner the devices through which the VM shares memory with others,
// as /dev/slurmv/ivshmem0 and so on. These names link to the memory of the PCI devices, which the
// owner maps and needs no driver for, or to NVDIMMs.
func (s ivshmemDevices) offer(ctx context.Context, want guest.IVShmem, u guest.User) error {
	if want.Devices == 0 {
		return nil
	}
	if err := os.MkdirAll(s.path("dev/slurmv"), 0o755); err != nil {
		return err
	}
	if want.NVDIMM {
		return nvdimms(s).offer(ctx, want, u)
	}
	devices, err := s.awaitIVShmem(ctx, want)
	if err != nil {
		return err
	}
	for k, d := range devices {
		if err := s.give(d, nameOfDevice(k), u); err != nil {
			return fmt.Errorf("shared-memory device %d (PCI %s): %w", k, d.address, err)
		}
	}
	return nil
}

// A pciDevice is a device in sysfs.
type pciDevice struct{ address string }

// dir is the directory of the device's files.
func (d pciDevice) dir() string { return filepath.Join("/sys/bus/pci/devices", d.address) }

// memory is the file that maps the device's shared memory, its third PCI region (BAR 2).
func (d pciDevice) memory() string { return filepath.Join(d.dir(), "resource2") }

// give makes the job's owner the owner of the device, and links name to its memory.
func (s ivshmemDevices) give(d pciDevice, name string, u guest.User) error {
	if text, _ := os.ReadFile(s.path(d.dir(), "enable")); strings.TrimSpace(string(text)) == "0" {
		if err := s.writeSysfs(filepath.Join(d.dir(), "enable"), "1"); err != nil {
			return err
		}
	}
	// The second file is the same memory, mapped with write combining.
	for _, file := range []string{d.memory(), d.memory() + "_wc"} {
		err := s.handOver(file, u)
		if err != nil && (file == d.memory() || !errors.Is(err, fs.ErrNotExist)) {
			return err
		}
	}
	return s.link(name, d.memory())
}

// nameOfDevice is how the owner finds device k.
func nameOfDevice(k int) string { return "/dev/slurmv/ivshmem" + strconv.Itoa(k) }

// handOver makes the job's owner the only user who may open a device.
func (s *system) handOver(device string, u guest.User) error {
	if err := os.Chown(s.path(device), int(u.UID), int(u.GID)); err != nil {
		return err
	}
	return os.Chmod(s.path(device), 0o600)
}

// link makes name a link to a device.
func (s *system) link(name, device string) error {
	_ = os.Remove(s.path(name))
	return os.Symlink(device, s.path(name))
}

// awaitDevices calls look with growing pauses until it has found all devices. After devicePatience it returns missing's error.
func awaitDevices(ctx context.Context, look func() (all bool, err error), missing func() error) error {
	timeout := time.After(devicePatience)
	for pause := time.Duration(0); ; pause = min(max(2*pause, 50*time.Millisecond), time.Second) {
		if all, err := look(); all || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-timeout:
			return missing()
		case <-time.After(pause):
		}
	}
}

// awaitIVShmem returns the devices once the kernel has found all of them and given each a
// place in the VM's address space. The devices are plugged into a running VM. The firmware
// could not know of them and has left no room for them behind their bridge, so the kernel
// has to lay that bridge out anew. awaitIVShmem also makes the kernel look for new devices,
// in case it does not notice them itself.
func (s ivshmemDevices) awaitIVShmem(ctx context.Context, want guest.IVShmem) (found []pciDevice, err error) {
	placed := 0
	look := func() (bool, error) {
		devices, err := s.pciDevices()
		if err != nil {
			return false, err
		}
		found = slices.DeleteFunc(devices, func(d pciDevice) bool { return !s.isIVShmem(s.path(d.dir())) })
		placed = s.countPlaced(found, want.Size)
		if len(found) == want.Devices && placed == want.Devices {
			return true, nil
		}
		s.log().Info("waiting for shared-memory devices", "found", len(found), "placed", placed, "want", want)
		s.layOut(found, want.Size)
		return false, nil
	}
	err = awaitDevices(ctx, look, func() error {
		return fmt.Errorf("the VM has %d shared-memory devices (IVShmem) instead of %d, and room for %d of them in its address space", len(found), want.Devices, placed)
	})
	return found, err
}

// pciDevices returns all devices in the order of their addresses.
func (s ivshmemDevices) pciDevices() ([]pciDevice, error) {
	entries, err := os.ReadDir(s.path("sys/bus/pci/devices")) // sorted
	if err != nil {
		return nil, fmt.Errorf("look for shared-memory devices: %w", err)
	}
	devices := make([]pciDevice, len(entries))
	for i, e := range entries {
		devices[i].address = e.Name()
	}
	return devices, nil
}

// isIVShmem reports whether the device in that directory is an IVShmem device.
func (s ivshmemDevices) isIVShmem(dir string) bool {
	return sysfsText(dir, "vendor") == "0x1af4" && sysfsText(dir, "device") == "0x1110"
}

func sysfsText(dir, file string) string {
	text, _ := os.ReadFile(filepath.Join(dir, file))
	return strings.TrimSpace(string(text))
}

// countPlaced counts the devices whose memory can be mapped.
func (s ivshmemDevices) countPlaced(devices []pciDevice, size int64) (n int) {
	for _, d := range devices {
		if s.placed(d, size) {
			n++
		}
	}
	return n
}

// placed reports whether the memory has an address. Linux 6.12 shows the memory's file only then, and Linux 7.2 always.
func (s ivshmemDevices) placed(d pciDevice, size int64) bool {
	info, err := os.Stat(s.path(d.memory()))
	return err == nil && info.Size() == size && s.address(d) != 0
}

// address is that of the device's memory, or 0: the file resource has a line for each of the device's PCI regions, with the first
// address, the last one and flags.
func (s ivshmemDevices) address(d pciDevice) (first uint64) {
	lines := strings.Split(sysfsText(s.path(d.dir()), "resource"), "\n")
	if len(lines) > 2 {
		_, _ = fmt.Sscanf(lines[2], "0x%x", &first)
	}
	return first
}

// layOut makes the kernel look for devices again. It first makes the kernel forget each
// port behind which a device has no room.
func (s ivshmemDevices) layOut(found []pciDevice, size int64) {
	var forgotten []string
	for _, d := range found {
		port, err := s.portOf(d)
		if err != nil || s.placed(d, size) || slices.Contains(forgotten, port) || !s.onlyIVShmem(port) {
			continue
		}
		forgotten = append(forgotten, port)
		if err := s.writeSysfs(filepath.Join("/", strings.TrimPrefix(port, s.path()), "remove"), "1"); err != nil {
			s.log().Warn("PCI port not laid out anew", "port", port, "err", err)
		}
	}
	if err := s.writeSysfs("/sys/bus/pci/rescan", "1"); err != nil {
		s.log().Warn("no look for PCI devices", "err", err)
	}
}

// pciAddress is compiled only when it is needed, because the agent's program also starts
// once for every program of a job.
var pciAddress = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)
})

// portOf returns the directory of the root bus's port behind which the device is, or the
// device's own directory if it is on the root bus. In sysfs, a device is below the device
// that it is plugged into.
func (s ivshmemDevices) portOf(d pciDevice) (string, error) {
	dir, err := filepath.EvalSymlinks(s.path(d.dir()))
	if err != nil {
		return "", err
	}
	for pciAddress().MatchString(filepath.Base(filepath.Dir(dir))) {
		dir = filepath.Dir(dir)
	}
	return dir, nil
}

// onlyIVShmem reports whether there are only bridges and shared memory behind the port, so
// that it can be removed for a moment without harm.
func (s ivshmemDevices) onlyIVShmem(dir string) bool {
	if s.isIVShmem(dir) {
		return true
	}
	if !strings.HasPrefix(sysfsText(dir, "class"), "0x0604") {
		return false
	}
	entries, err := os.ReadDir(dir)
	return err == nil && !slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return pciAddress().MatchString(e.Name()) && !s.onlyIVShmem(filepath.Join(dir, e.Name()))
	})
}
