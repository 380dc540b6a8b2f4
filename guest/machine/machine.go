// Package machine turns the VM in which it runs into a member of a job's cluster: host
// name, the job owner's user, mounts, network, names, shared memory, an SSH server. It
// implements [guest.Machine] for slurmv-guest.
//
// It works in any Linux image as root and needs no program of the image, except for growing
// the root file system and for SSH. Pure functions decide what it writes below /etc, and
// every step may be repeated. Tests point it at a directory and replace the system calls.
package machine

import (
	"bufio"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/guest"
)

// A Machine is the VM.
type Machine struct {
	system
	// BootSeconds is the time from the kernel's start to the agent's.
	BootSeconds float64

	mu         sync.Mutex
	stopLeases context.CancelFunc // ends the goroutines that keep addresses
	nics       []nic              // interfaces that have an address
	sshd       sshServer
}

// New is the VM in which this process runs. It logs to log.
func New(log *slog.Logger, bootSeconds float64) *Machine {
	return &Machine{system: system{logger: log}, BootSeconds: bootSeconds}
}

var _ guest.Machine = (*Machine)(nil)

// Setup sets the VM up as s says.
func (m *Machine) Setup(ctx context.Context, s guest.Setup) (guest.Report, error) {
	if err := check(s); err != nil {
		return guest.Report{}, err
	}
	if err := m.become(ctx, s.Fresh); err != nil {
		return guest.Report{}, err
	}
	if err := m.hostName(s.HostName); err != nil {
		return guest.Report{}, err
	}
	var warnings []string
	steps, ctx := errgroup.WithContext(ctx)
	steps.Go(func() error { return m.network(ctx, s.HostName, s.NICs) })
	steps.Go(func() error { return m.mpiFiles(s.MPI) })
	steps.Go(func() error { return ivshmemDevices{&m.system}.offer(ctx, s.IVShmem, s.User) })
	steps.Go(func() error {
		if err := m.user(s.User, s.Mounts); err != nil {
			return err
		}
		if err := m.mounts(ctx, s.Mounts); err != nil {
			return err
		}
		return m.binds(s.Mounts)
	})
	if s.GrowRoot {
		steps.Go(func() error {
			if err := m.growRoot(ctx); err != nil {
				m.log().Warn("the root file system keeps its size", "err", err)
				warnings = append(warnings, "the root file system keeps its size: "+err.Error())
			}
			return nil
		})
	}
	if err := steps.Wait(); err != nil {
		return guest.Report{}, err
	}
	report := m.report()
	report.Warnings = warnings
	return report, nil
}

// check refuses values that would break a file or the machine. The host is trusted, but a
// user typed some of the values.
func check(s guest.Setup) error {
	if !validName(s.HostName) {
		return fmt.Errorf("%.80q is not a host name", s.HostName)
	}
	if err := checkUser(s.User); err != nil {
		return err
	}
	for _, mount := range s.Mounts {
		if err := checkMount(mount); err != nil {
			return err
		}
	}
	return nil
}

func (m *Machine) hostName(name string) error {
	set := m.setHostName
	if set == nil {
		set = unix.Sethostname
	}
	if err := set([]byte(name)); err != nil {
		return fmt.Errorf("set the host name %s: %w", name, err)
	}
	return writeFile(m.path("etc/hostname"), name+"\n", 0o644)
}

// report describes the machine.
func (m *Machine) report() guest.Report {
	r := guest.Report{OS: osName(m.path("etc/os-release")), BootSeconds: m.BootSeconds}
	var name unix.Utsname
	if err := unix.Uname(&name); err == nil {
		r.Kernel = unix.ByteSliceToString(name.Release[:])
	}
	for _, n := range m.interfaces() {
		r.Addresses = append(r.Addresses, guest.Address{Interface: n.Name, MAC: n.mac, CIDR: n.own.String()})
	}
	return r
}

func osName(file string) string {
	f, err := os.Open(file)
	if err != nil {
		return "Linux"
	}
	defer func() { _ = f.Close() }()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if name, ok := strings.CutPrefix(lines.Text(), "PRETTY_NAME="); ok {
			return strings.Trim(name, `"'`)
		}
	}
	return "Linux"
}

// writeFile replaces a file in one step and follows links to it.
func writeFile(path, text string, mode os.FileMode) (err error) {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		path = real
	}
	tmp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path))
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp.Name())
			err = fmt.Errorf("write %s: %w", path, err)
		}
	}()
	_, err = tmp.WriteString(text)
	if err == nil {
		err = tmp.Chmod(mode)
	}
	if closeErr := tmp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	return err
}

// readFile returns the text of a file, "" if the file does not exist.
func readFile(path string) (string, error) {
	text, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		return "", nil
	}
	return string(text), err
}
