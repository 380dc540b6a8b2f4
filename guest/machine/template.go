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

// Template brings the VM to where all that are restored from it go on: it has booted to
// the end, knows the drivers that they need and has nothing in it that would have to be
// secret or different in each of them. Its caches stay: all share them, and need not read
// the same programs again.
func (m *Machine) Template(ctx context.Context) error {
	m.awaitBoot(ctx)
	m.modules(ctx, "virtio_net", "9pnet_virtio", "9p")
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

// bootPatience is how long the image's services may take to come up. Some images have one
// that never does.
const bootPatience = 2 * time.Minute

// awaitBoot returns when the image's init has done all that it does at boot: what is left
// of it would be done in each VM.
func (m *Machine) awaitBoot(ctx context.Context) {
	if _, err := os.Stat(m.path("run/systemd/system")); err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, bootPatience)
	defer cancel()
	// It says "degraded" by its exit status, and that is an end of the boot, too.
	if err := m.command(ctx, "", "systemctl", "is-system-running", "--wait"); err != nil {
		m.log().Info("end of the boot", "err", err)
	}
}

// rehearse does what each VM will do first, a change below /etc and a look at the network,
// for what that leaves in memory: the parts of programs and of the disk that would have to be
// read in each of them.
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

// hostKeys are those of the image's own sshd, with their public halves.
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

// memoryLeft is what is not taken for zeroing, in bytes: the kernel and the agent need
// some all the while.
const memoryLeft = 24 << 20

// zeroMemory overwrites the memory that nobody uses with zeros, by taking it and giving it
// back. Zeros take no room in the template.
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

// isHex tells whether the parts of a text between hyphens are so many hexadecimal digits, as
// the kernel writes them.
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

// become makes the VM another machine than those that were restored from the same
// template. The random numbers come first, since everything may hang on them.
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

// newBootID has the kernel's boot id, of which a program may conclude that two processes
// share a machine, covered by another: the kernel makes it once.
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

// newHostKey gives the image's own sshd a key, if there is one.
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
