package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/netdump"
)

// Template brings the VM to the point from which restored VMs go on. It has booted
// completely, has loaded the drivers that restored VMs need, and contains nothing that must
// be secret or different in each of them. It keeps its caches: all restored VMs share them,
// so they need not read the same programs again.
func (m *Machine) Template(ctx context.Context) error {
	m.awaitBoot(ctx)
	m.modules(ctx, "virtio_net", "fuse", "9pnet_virtio", "9p")
	nvdimms{&m.system}.prepare(ctx)
	if err := m.growRoot(ctx); err != nil {
		m.log().Warn("the root file system keeps its size", "err", err)
	}
	if err := m.rehearse(); err != nil {
		return err
	}
	if err := m.forget(); err != nil {
		return err
	}
	unix.Sync()
	return m.zeroMemory()
}

// bootPatience is how long the image's services may take to come up. Some images have a
// service that never does.
const bootPatience = 2 * time.Minute

// awaitBoot returns when the image's init has finished the boot. Otherwise each restored VM
// would have to finish it.
func (s *system) awaitBoot(ctx context.Context) {
	if _, err := os.Stat(s.path("run/systemd/system")); err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, bootPatience)
	defer cancel()
	// systemctl reports the state "degraded" by its exit status. The boot is over then,
	// too.
	if err := s.command(ctx, "", "systemctl", "is-system-running", "--wait"); err != nil {
		s.log().Info("end of the boot", "err", err)
	}
}

// rehearse does what each restored VM will do first: it changes a file below /etc and lists
// the network's links. This leaves parts of programs and of the disk in memory, which each
// restored VM would otherwise have to read.
func (m *Machine) rehearse() error {
	name, err := readFile(m.path("etc/hostname"))
	if err != nil {
		return err
	}
	if err := writeFile(m.path("etc/hostname"), name, 0o644); err != nil {
		return err
	}
	_, err = netdump.Links()
	return err
}

// hostKeys are the private and public keys of the image's own sshd.
const hostKeys = "etc/ssh/ssh_host_*_key*"

// forget removes secrets that would be the same in all VMs.
func (m *Machine) forget() error {
	keys, _ := filepath.Glob(m.path(hostKeys))
	for _, path := range append(keys, m.path("var/lib/systemd/random-seed")) {
		if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
			return err
		}
	}
	return nil
}

// memoryLeft is how much free memory is not zeroed, in bytes: the kernel and the agent need
// some meanwhile.
const memoryLeft = 24 << 20

// zeroMemory overwrites free memory with zeros, by allocating it and giving it back. Zeros
// take no space in the template.
func (s *system) zeroMemory() error {
	var info unix.Sysinfo_t
	if err := unix.Sysinfo(&info); err != nil {
		return fmt.Errorf("zero free memory: %w", err)
	}
	free := int64(info.Freeram*uint64(info.Unit)) - memoryLeft
	if s.root != "" || free <= 0 {
		return nil
	}
	memory, err := unix.Mmap(-1, 0, int(free), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE|unix.MAP_POPULATE)
	if err != nil {
		s.log().Warn("free memory is not zeroed", "err", err)
		return nil
	}
	return unix.Munmap(memory)
}

// isHex reports whether a text consists of groups of lower-case hexadecimal digits between
// hyphens; digits are the lengths of the groups.
func isHex(text string, digits ...int) bool {
	parts := strings.Split(text, "-")
	if len(parts) != len(digits) {
		return false
	}
	for i, part := range parts {
		if len(part) != digits[i] || strings.Trim(part, "0123456789abcdef") != "" {
			return false
		}
	}
	return true
}

// become gives the VM an identity of its own, different from all other VMs of the same
// template. The random numbers come first, because everything else may use them.
func (m *Machine) become(ctx context.Context, id *guest.Identity) error {
	if id == nil {
		return nil
	}
	if !isHex(id.MachineID, 32) || !isHex(id.BootID, 8, 4, 4, 4, 12) {
		return errors.New("the VM's new identity is not one")
	}
	for _, step := range []func() error{
		func() error { return m.reseed(id.Seed) },
		func() error { return writeFile(m.path("etc/machine-id"), id.MachineID+"\n", 0o444) },
		func() error { return m.newBootID(id.BootID) },
		func() error { return m.newHostKey(ctx, *id) },
	} {
		if err := step(); err != nil {
			return fmt.Errorf("make the VM a machine of its own: %w", err)
		}
	}
	return nil
}

// newBootID replaces the kernel's boot id: programs conclude from equal boot ids that two
// processes share a machine. The kernel cannot change the id, so newBootID mounts a file
// over it.
func (m *Machine) newBootID(id string) error {
	dir := m.path("run/slurm-v")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	file := filepath.Join(dir, "boot_id")
	if err := writeFile(file, id+"\n", 0o444); err != nil {
		return err
	}
	return m.doMount(file, m.path("proc/sys/kernel/random/boot_id"), "", unix.MS_BIND, "")
}

// newHostKey gives the image's own sshd a key, if the image has an sshd.
func (m *Machine) newHostKey(ctx context.Context, id guest.Identity) error {
	if _, err := m.server().find(); err != nil {
		return nil
	}
	if err := os.MkdirAll(m.path("etc/ssh"), 0o755); err != nil {
		return err
	}
	key := m.path("etc/ssh/ssh_host_ed25519_key")
	if err := errors.Join(
		writeFile(key, strings.TrimRight(id.HostKey, "\n")+"\n", 0o600),
		writeFile(key+".pub", id.HostKeyPublic+"\n", 0o644)); err != nil {
		return err
	}
	if _, err := os.Stat(m.path("run/systemd/system")); err != nil {
		return nil
	}
	if err := m.command(ctx, "", "systemctl", "try-restart", "--no-block", "ssh.service", "sshd.service"); err != nil {
		m.log().Debug("image's sshd not restarted", "err", err)
	}
	return nil
}
