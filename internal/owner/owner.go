// Package owner does things with the rights of a job's owner: what names a user's path
// is opened ([Owner.Open]), and a program that works on a user's files is run
// ([Owner.Command]), by a process that has wholly become that user.
//
// Half of it is not enough. A thread with the user's rights on files alone
// (setfsuid) is still root where the kernel asks for the effective user or for a
// capability: procfs shows it what only root may see, and the links below /proc/PID
// lead it past directories that are closed to the user. And a thread with the user's
// identity could be killed by the user, and all of the root process with it.
//
// The process can be whose it acts for, traced and killed by other processes of
// theirs. So nothing that it says is trusted: what comes back is a descriptor, which is
// looked at again, and a sentence.
package owner

import (
	"context"
	"fmt"
	"os"
	"os/exec"
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

// Nobody is in no group, and has no file: what it can open, everybody can.
var Nobody = Owner{Name: "nobody", UID: 65534, GID: 65534}

// commandDelay is how long the end of a program's output is awaited once it has ended.
// The owner can have another process hold it open. So does every process that is being
// started at that moment, until it has become its program: many VMs, few cores.
const commandDelay = 20 * time.Second

// Command is a program that runs as the owner in the directory /, with nothing of this
// process' environment. What it prints is not to be relied on: the owner can
// meddle with a process of theirs.
func (o Owner) Command(ctx context.Context, path string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Dir, cmd.Env = "/", []string{"PATH=" + program.Path, "LC_ALL=C"}
	cmd.WaitDelay = commandDelay
	cmd.SysProcAttr = o.become()
	return cmd
}

// become makes a new process the owner's: with another uid than root's it has no
// capability left. An ordinary user can only be themselves.
func (o Owner) become() *syscall.SysProcAttr {
	if os.Geteuid() != 0 {
		return nil
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: o.UID, Gid: o.GID, Groups: o.GroupIDs()}}
}
