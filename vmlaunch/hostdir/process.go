package hostdir

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
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
	if err := unix.Fchdir(directoryFD); err != nil {
		return fmt.Errorf("enter it: %w", err)
	}
	_ = unix.Close(directoryFD)
	if os.Geteuid() != 0 {
		return nil
	}
	if err := unix.Chroot("."); err != nil {
		return fmt.Errorf("make it the root directory: %w", err)
	}
	groups := make([]int, len(o.Groups))
	for i, g := range o.Groups {
		groups[i] = int(g)
	}
	// Those of syscall change all threads.
	err := syscall.Setgroups(groups)
	if err == nil {
		err = syscall.Setresgid(int(o.GID), int(o.GID), int(o.GID))
	}
	if err == nil {
		err = syscall.Setresuid(int(o.UID), int(o.UID), int(o.UID))
	}
	if err != nil {
		return fmt.Errorf("become user %d: %w", o.UID, err)
	}
	return unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0)
}
