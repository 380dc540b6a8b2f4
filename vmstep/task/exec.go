package task

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/mpirun"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/internal/pmi"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmstep"
	"github.com/slurm-v/slurm-v/vmstep/relay"
)

// An Exec is a task that stands for a program in a VM of this node. It passes standard
// streams, signals and PMI to and from the program.
type Exec struct {
	Agent
	Distribution string // how tasks are spread over VMs: block or cyclic
	VM           int    // number in the job, or [nodeagent.ByDistribution]
	Terminal     bool   // give the program a terminal
	Mpirun       bool   // give it the environment of an mpirun that starts its tasks by ssh
	PMIx         bool   // start the program with a PMIx server
	Claim        string // the run's claim on an IVShmem device; "" for none
	MPIShared    string // whether MPI gets the device's memory: auto, on or off
	Quiet        bool   // do not say what MPI does with it, unless the run fails for it
	SparesRanks  bool   // if this rank is gone, let the others live
}

// errSignal ends a task that gets a signal before its program runs.
type errSignal struct{ number unix.Signal }

func (e errSignal) Error() string { return "killed by " + e.number.String() }

// End ends this task in the same way as its program has ended, so that srun reports the
// program's end in its usual words. It does not return.
func End(exit guest.Exit, err error) {
	var killed errSignal
	switch {
	case errors.As(err, &killed):
		dieBy(killed.number)
	case err != nil:
		fmt.Fprintf(os.Stderr, "slurm-v: node %s: %v\n", os.Getenv(slurm.EnvNodeName), err)
		os.Exit(1)
	case exit.Signal != 0:
		dieBy(unix.Signal(exit.Signal))
	}
	os.Exit(exit.Code)
}

// Run relays until the program has ended.
func (e Exec) Run(program []string) (guest.Exit, error) {
	signals := catchSignals()
	ctx, stop := untilSignal(signals)
	session, reply, err := e.reachVM(ctx)
	if err != nil {
		return guest.Exit{}, err
	}
	defer session.Close()
	task := &relay.Task{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Signals: signals}
	if err := e.joinPMI(task, reply); err != nil {
		return guest.Exit{}, err
	}
	command := command(program, reply.VM.Name, task.PMI != nil)
	command.PMIx = e.PMIx && task.PMI != nil
	task.PMIx, task.SparesRanks = command.PMIx, e.SparesRanks
	if err := e.giveMemory(task, &command, reply); err != nil {
		return guest.Exit{}, err
	}
	if e.Mpirun {
		command.Env = mpirun.Env(command.Env, mpirun.Dir(os.Getuid()))
	}
	if e.Terminal {
		restore, err := e.useTerminal(task, &command)
		if err != nil {
			return guest.Exit{}, err
		}
		defer restore()
	}
	process, err := session.Start(ctx, command)
	stop()
	if err != nil {
		task.NeverStarted()
		return guest.Exit{}, e.lostIn(reply, err)
	}
	exit, err := task.Run(process)
	err = e.lostIn(reply, err)
	task.Leave(exit)
	return exit, err
}

// lostIn names the VM if err says that its guest was lost, and says how it was lost if the
// agent knows.
func (e Exec) lostIn(reply nodeagent.Reply, err error) error {
	if !errors.Is(err, guest.ErrLost) {
		return err
	}
	if cause := e.causeOfLoss(reply.VM); cause != "" {
		return errors.New(cause)
	}
	return fmt.Errorf("%s is gone, and the program with it; slurmv logs may say why (%w)", reply.VM.Name, err)
}

// causeTimeout bounds how long to wait until libvirt reports a guest's end. A guest that
// powers itself off ends its guest agent first, and may then take long to end everything
// else: an emulated one with systemd on a busy node took 61 s.
const causeTimeout = 3 * time.Minute

// causeOfLoss asks the agent why a VM was lost. libvirt tells the agent of the guest's end
// a moment after the channel has broken, so causeOfLoss asks until there is an answer.
func (e Exec) causeOfLoss(vm *nodeagent.VM) string {
	ctx, cancel := context.WithTimeout(context.Background(), causeTimeout)
	defer cancel()
	for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		client, err := e.dial(ctx)
		if err != nil {
			return ""
		}
		node, err := client.PS(ctx)
		_ = client.Close()
		if err != nil {
			return ""
		}
		if cause := e.causeIn(node, vm); cause != "" {
			return cause
		}
	}
	return ""
}

// causeIn says why the program in a VM was lost, from the agent's description of its node.
func (e Exec) causeIn(node nodeagent.NodeVMs, lost *nodeagent.VM) string {
	for _, vm := range node.VMs {
		if vm.Number == lost.Number && vm.Cause != "" {
			return fmt.Sprintf("%s %s, and the program in it is lost", vm.Name, vm.Cause)
		}
	}
	claim, err := nodeagent.ParseClaim(e.Claim)
	if err == nil && !slices.Contains(node.Claims, claim) {
		return fmt.Sprintf("the run has lost its claim on IVShmem device %d, so its program in %s was ended", claim.Device, lost.Name)
	}
	return ""
}

// deviceEnv returns the variables of a program that may use so many bytes of an IVShmem device.
func (e Exec) deviceEnv(size int64) []string {
	claim, err := nodeagent.ParseClaim(e.Claim)
	if err != nil {
		return nil
	}
	env := vmstep.IVShmemEnv(claim.Device, size)
	if e.Mpirun {
		return env // mpirun decides which ranks are where
	}
	return append(env, vmstep.IVShmemPeers(os.Getenv)...)
}

// reachVM waits for the agent, which listens once its VMs are up, and opens a session with
// the VM of this task.
func (e Exec) reachVM(ctx context.Context) (*guest.Session, nodeagent.Reply, error) {
	request := nodeagent.Request{VM: e.VM, Distribution: e.Distribution}
	if e.Claim != "" {
		claim, err := nodeagent.ParseClaim(e.Claim)
		if err != nil {
			return nil, nodeagent.Reply{}, err
		}
		request.Claim = &claim
	}
	if e.VM == nodeagent.ByDistribution {
		task, err := slurm.TaskOf(os.Getenv)
		if err != nil {
			return nil, nodeagent.Reply{}, err
		}
		request.LocalID, request.LocalTasks = task.LocalID, task.LocalTasks
	}
	client, err := e.await(ctx)
	if err != nil {
		return nil, nodeagent.Reply{}, err
	}
	conn, reply, err := client.Exec(ctx, request)
	if err != nil {
		return nil, reply, err
	}
	session, err := guest.NewSession(conn)
	return session, reply, err
}

// command describes the program: its arguments, and this task's environment, directory,
// identity, umask and limits.
func command(program []string, vm string, withPMI bool) guest.Command {
	dir, err := os.Getwd()
	if err != nil {
		dir = "/"
	}
	umask := unix.Umask(0)
	unix.Umask(umask)
	return guest.Command{
		Args:   program,
		Env:    vmstep.ProgramEnv(os.Environ(), vm),
		Dir:    dir,
		UID:    uint32(os.Getuid()),
		GID:    uint32(os.Getgid()),
		Umask:  uint32(umask),
		Limits: guest.TaskLimits(),
		PMI:    withPMI,
	}
}

// joinPMI gives the relay the descriptor to slurmstepd's PMI server, if there is one.
func (e Exec) joinPMI(r *relay.Task, reply nodeagent.Reply) error {
	text := os.Getenv("PMI_FD")
	if text == "" {
		return nil
	}
	fd, err := strconv.Atoi(text)
	if err != nil || fd < 3 {
		return fmt.Errorf("PMI_FD=%q is not a descriptor", text)
	}
	task, err := slurm.TaskOf(os.Getenv)
	if err != nil {
		return err
	}
	// Non-blocking, so that closing the descriptor ends a waiting read.
	if err := unix.SetNonblock(fd, true); err != nil {
		return fmt.Errorf("PMI_FD=%d: %w", fd, err)
	}
	unix.CloseOnExec(fd)
	r.PMI = os.NewFile(uintptr(fd), "PMI")
	r.Rank = pmi.Layout{
		Ranks:        task.Ranks,
		VMsPerNode:   len(reply.Node.VMs),
		VM:           reply.VM.Index,
		Distribution: pmi.Distribution(e.Distribution),
		Absence: &pmi.Absence{
			Task:  fmt.Sprintf("%d@%s", task.Rank, os.Getenv(slurm.EnvNodeName)),
			Wait:  pmi.AbsenceWait(task.Rank),
			First: func() bool { return e.first("absent in step " + os.Getenv(slurm.EnvStepID)) },
		},
	}
	return nil
}

// firstTimeout bounds how long the agent may take to answer.
const firstTimeout = 5 * time.Second

// first reports whether this is the first task of its node that says the word to the agent.
func (e Exec) first(word string) bool {
	ctx, cancel := context.WithTimeout(context.Background(), firstTimeout)
	defer cancel()
	client, err := e.dial(ctx)
	if err != nil {
		return false
	}
	first, err := client.First(ctx, word)
	return err == nil && first
}

// useTerminal puts the task's terminal into raw mode, so that only the program's terminal
// interprets the bytes.
func (e Exec) useTerminal(r *relay.Task, c *guest.Command) (restore func(), err error) {
	stdin := int(os.Stdin.Fd())
	state, err := term.MakeRaw(stdin)
	if err != nil {
		return nil, fmt.Errorf("--terminal: standard input is no terminal: %w", err)
	}
	r.Size = func() guest.WindowSize {
		columns, rows, _ := term.GetSize(stdin)
		return guest.WindowSize{Rows: uint16(rows), Columns: uint16(columns)}
	}
	size := r.Size()
	c.Terminal = &size
	return func() { _ = term.Restore(stdin, state) }, nil
}

// catchSignals returns all signals that a program may be sent. It leaves out the signals
// about this process itself, and those that stop it at its own terminal. It catches
// SIGPIPE, so that writing to a closed output returns an error instead of ending the task.
func catchSignals() <-chan os.Signal {
	signals := make(chan os.Signal, 128)
	for n := unix.Signal(1); n <= 64; n++ {
		switch n {
		case unix.SIGKILL, unix.SIGSTOP, unix.SIGCHLD, unix.SIGURG, unix.SIGPIPE, unix.SIGTTIN, unix.SIGTTOU, 32, 33:
		default:
			signal.Notify(signals, n)
		}
	}
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	return signals
}

// untilSignal returns a context that ends if a signal ends the task before its program
// runs. After stop, untilSignal reads no more signals; the relay does.
func untilSignal(signals <-chan os.Signal) (ctx context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(context.Background())
	stopped := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stopped:
				return
			case s := <-signals:
				switch s {
				case unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT:
					cancel(errSignal{s.(unix.Signal)})
				}
			}
		}
	}()
	return ctx, func() {
		close(stopped)
		<-ended
	}
}
