package wrapper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmstep"
)

// One of these words as the only argument makes this program the keeper, or the process
// that starts the keeper and exits. Since that process exits, the keeper is no child of
// this process, which becomes srun and might wait for it. The words are not options for
// people.
const (
	keeperWord  = "--keeper-of-the-vm-step"
	starterWord = "--start-keeper-of-the-vm-step"
)

// startFD is the descriptor to which a new keeper writes why its start failed.
const startFD = 3

// linger: see [vmstep.Keeper].
const linger = 10 * time.Second

// startKeeper starts a process that outlives this one: with a session of its own, no
// terminal, and none of the caller's descriptors. It returns once this keeper listens, or
// has found that another one does.
func startKeeper() error {
	told, tell, err := os.Pipe()
	if err != nil {
		return err
	}
	defer told.Close()
	starter, err := again(starterWord, tell)
	tell.Close()
	if err != nil {
		return err
	}
	if err := starter.Wait(); err != nil {
		return err
	}
	text, err := io.ReadAll(io.LimitReader(told, 4096))
	if err == nil && len(text) > 0 {
		err = errors.New(strings.TrimSpace(string(text)))
	}
	return err
}

// starter starts the keeper.
func starter() error {
	tell := os.NewFile(startFD, "start")
	_, err := again(keeperWord, tell)
	if err != nil {
		fmt.Fprintln(tell, err)
	}
	return nil
}

// again starts this program with another task, in a session of its own. tell is the only
// open file that the process inherits.
func again(word string, tell *os.File) (*exec.Cmd, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(self, word)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.ExtraFiles = []*os.File{tell}
	return cmd, cmd.Start()
}

// keeper runs the keeper until its end.
func keeper() error {
	tell := os.NewFile(startFD, "start")
	closeInherited()
	unix.CloseOnExec(startFD)
	// The signals are caught, not ignored: srun would inherit ignored signals.
	signal.Notify(make(chan os.Signal, 1), unix.SIGHUP, unix.SIGINT, unix.SIGQUIT, unix.SIGTERM,
		unix.SIGALRM, unix.SIGUSR1, unix.SIGUSR2)
	k, l, err := newKeeper()
	if err != nil && !errors.Is(err, vmstep.ErrKept) {
		fmt.Fprintln(tell, err)
	}
	tell.Close()
	if err != nil {
		return err
	}
	return k.Serve(context.Background(), l)
}

func newKeeper() (*vmstep.Keeper, net.Listener, error) {
	job, err := vmstep.JobFromEnv(os.Getenv)
	if err != nil {
		return nil, nil, err
	}
	client := slurm.User(os.Environ())
	srun, err := slurm.Srun()
	if err != nil {
		return nil, nil, err
	}
	l, err := vmstep.Listen(vmstep.Addresses(os.Getuid(), job))
	if err != nil {
		return nil, nil, err
	}
	return &vmstep.Keeper{
		Nodes:   job.Nodes,
		VMs:     job.VMs,
		Command: vmstep.StepCommand(srun, vmstep.AgentPath(), job.Nodes),
		Env:     vmstep.StepEnv(os.Environ()),
		JobGone: func(ctx context.Context) bool { return jobGone(ctx, client, job) },
		Linger:  linger,
	}, l, nil
}

// jobGone asks Slurm whether the job has ended. While Slurm does not answer, the job counts
// as alive. On a machine without squeue it counts as ended, because the keeper could not
// serve it.
func jobGone(ctx context.Context, c slurm.Client, job vmstep.Job) bool {
	state, err := c.State(ctx, job.ID)
	var answered *slurm.CommandError
	switch {
	case errors.As(err, &answered):
		return errors.Is(err, slurm.ErrUnknownJob)
	case err != nil:
		return true
	}
	return slurm.Over(state)
}

// closeInherited closes all other descriptors of the caller's, such as the pipe of a
// $(command): its reader would wait until the job ends. This program's own descriptors are
// marked close-on-exec, inherited ones are not.
func closeInherited() {
	entries, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return
	}
	for _, e := range entries {
		fd, err := strconv.Atoi(e.Name())
		if err != nil || fd <= startFD {
			continue
		}
		if flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFD, 0); err == nil && flags&unix.FD_CLOEXEC == 0 {
			unix.Close(fd)
		}
	}
}
