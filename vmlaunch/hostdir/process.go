package hostdir

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/owner"
)

// processName is the argument 0 that tells a program with this package to serve a
// directory.
const processName = "slurmv-hostdir"

// The descriptors that the process inherits.
const (
	controlFD   = 3
	directoryFD = 4
)

// orders say as whom the process serves, and how.
type orders struct {
	UID      uint32   `json:"uid"`
	GID      uint32   `json:"gid"`
	Groups   []uint32 `json:"groups"`
	ReadOnly bool     `json:"read_only"`
}

// The server is this same program. It runs neither main nor the init functions of packages
// that come later, such as the loading of libvirt.
func init() {
	if len(os.Args) != 3 || os.Args[0] != processName {
		return
	}
	if err := run(os.Args[2]); err != nil {
		fmt.Fprintln(os.Stderr, "slurmv-agent: serve a directory to VMs:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// run serves connections until the agent closes the control socket.
func run(text string) error {
	log.SetOutput(io.Discard) // the library's words at the end of a connection
	var o orders
	err := json.Unmarshal([]byte(text), &o)
	if err == nil {
		err = o.become()
	}
	if err := owner.Report(controlFD, err); err != nil {
		return err
	}
	for {
		conn, err := owner.NextConnection(controlFD)
		if err != nil || conn < 0 {
			return err
		}
		go serve(conn, o.ReadOnly)
	}
}

// become confines the process to its directory and makes it the owner's. An ordinary user,
// as in tests, can do neither.
func (o orders) become() error {
	unix.Umask(0) // the guest's kernel applies that of the program
	if os.Geteuid() != 0 {
		return enter()
	}
	if err := o.confine(); err != nil {
		return err
	}
	// Those of syscall change all threads.
	err := syscall.Setresgid(int(o.GID), int(o.GID), int(o.GID))
	if err == nil {
		err = syscall.Setresuid(int(o.UID), int(o.UID), int(o.UID))
	}
	if err != nil {
		return fmt.Errorf("become user %d: %w", o.UID, err)
	}
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}

// confine makes the directory the root directory. NFS with root_squash lets root into no
// directory that is closed to others, so this thread first gets the owner's rights on files.
// It keeps root's uid, and with it the capability that chroot needs (capabilities(7)).
func (o orders) confine() error {
	runtime.LockOSThread() // the kernel keeps these rights for each thread, and the directory for all
	defer runtime.UnlockOSThread()
	if err := o.takeFileRights(); err != nil {
		return fmt.Errorf("take the rights of user %d on files: %w", o.UID, err)
	}
	if err := enter(); err != nil {
		return err
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("make it the root directory: %w", err)
	}
	return nil
}

// takeFileRights gives all threads the owner's groups, and this one the owner's rights on files.
func (o orders) takeFileRights() error {
	groups := make([]int, len(o.Groups))
	for i, g := range o.Groups {
		groups[i] = int(g)
	}
	err := syscall.Setgroups(groups)
	if err == nil {
		err = unix.Setfsgid(int(o.GID))
	}
	if err == nil {
		err = unix.Setfsuid(int(o.UID))
	}
	return err
}

// enter enters the directory that the process inherits.
func enter() error {
	if err := unix.Fchdir(directoryFD); err != nil {
		return fmt.Errorf("enter it: %w", err)
	}
	_ = unix.Close(directoryFD)
	return nil
}
