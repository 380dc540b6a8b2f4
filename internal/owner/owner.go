// Package owner does things with the rights of a job's owner. It opens a user's path
// ([Owner.Open]), or runs a program on a user's files ([Owner.Command]), in a process
// that has completely become that user.
//
// A partial change would not suffice. A thread with only the user's rights on files
// (setfsuid) is still root where the kernel checks the effective user or a capability:
// procfs shows it what only root may see, and links below /proc/PID lead it past
// directories that the user cannot pass. And a thread with the user's identity could be
// killed by the user, and with it the whole root process.
//
// The user's other processes can trace and kill such a process. So its answers are not
// trusted: it can only return a descriptor, which is checked, or a sentence.
package owner

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
	"time"

	"github.com/slurm-v/slurm-v/internal/program"
)

func (o Owner) String() string {
	if o.Name == "" {
		return fmt.Sprintf("user %d", o.UID)
	}
	return "user " + o.Name
}

// ByName is the user with all groups, as after a login.
func ByName(name string) (Owner, error) {
	entry, err := user.Lookup(name)
	if err != nil {
		return Owner{}, err
	}
	uid, err1 := strconv.ParseUint(entry.Uid, 10, 32)
	gid, err2 := strconv.ParseUint(entry.Gid, 10, 32)
	if err := errors.Join(err1, err2); err != nil {
		return Owner{}, err
	}
	return Lookup(uint32(uid), uint32(gid))
}

// LoginEnviron is what a login would set, and further variables of this process.
func (o Owner) LoginEnviron(more []string) []string {
	env := []string{"HOME=" + o.Home, "USER=" + o.Name, "LOGNAME=" + o.Name, "SHELL=" + o.Shell}
	for _, name := range append([]string{"PATH", "LANG", "TERM"}, more...) {
		if value, given := os.LookupEnv(name); given {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// Nobody is in no group and owns no file: it can open only what everybody can.
var Nobody = Owner{Name: "nobody", UID: 65534, GID: 65534}

// commandDelay is how long after a program's end its output is read. Another process of
// the owner may still have it open. So may a process that is just being started, until
// its exec: that can last, with many VMs on few cores.
const commandDelay = 20 * time.Second

// Command is a program that runs as the owner in the directory /, with nothing of this
// process' environment. Do not rely on its output: the owner can tamper with the process.
func (o Owner) Command(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=" + program.Path, "LC_ALL=C"}
	cmd.WaitDelay = commandDelay
	cmd.SysProcAttr = o.become()
	return cmd
}

// become gives a new process the owner's identity. Without root's uid it has no
// capabilities. An ordinary user can only be themselves.
func (o Owner) become() *syscall.SysProcAttr {
	if os.Geteuid() != 0 {
		return nil
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: o.UID, Gid: o.GID, Groups: o.GroupIDs()}}
}
