package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/mpirun"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/internal/pmi"
	"github.com/slurm-v/slurm-v/vmstep"
	"github.com/slurm-v/slurm-v/vmstep/relay"
)

type execOptions struct {
	config       string
	distribution string
	vm           int
	terminal     bool
	mpirun       bool
	claim        string
	wait         time.Duration
}

func newExec() *cobra.Command {
	var o execOptions
	cmd := &cobra.Command{
		Use:   "exec [flags] -- program [arguments]",
		Short: "Be a task whose program runs in a VM of this node",
		Long: `Be a task whose program runs in a VM of this node.

slurm-v-run and slurmv exec start it through srun. Standard streams, signals and
PMI go to and from the program; its exit code or signal becomes the task's.`,
		Args:   cobra.MinimumNArgs(1),
		Hidden: true,
		Run: func(_ *cobra.Command, program []string) {
			end(runExec(o, program))
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	flags.StringVar(&o.config, "config", config.Path, "read the configuration from this `file`")
	flags.StringVar(&o.distribution, "vm-distribution", string(pmi.DistBlock), "spread the tasks over VMs by `block|cyclic`")
	flags.IntVar(&o.vm, "vm", nodeagent.ByPlacement, "use the VM with this `number` in the job, not the task's own")
	flags.BoolVar(&o.terminal, "terminal", false, "give the program a terminal")
	flags.BoolVar(&o.mpirun, "mpirun", false, "give the program the environment of an mpirun that starts its tasks by ssh")
	flags.StringVar(&o.claim, "claim", "", "run the program under this `claim` on an IVShmem device")
	flags.DurationVar(&o.wait, "wait", 5*time.Second, "wait this `long` for VMs that are still coming up")
	return cmd
}

// errSignal ends a task that was told to before its program ran.
type errSignal struct{ number unix.Signal }

func (e errSignal) Error() string { return "killed by " + e.number.String() }

// end makes the program's end that of this task, so that srun reports it in its
// own words.
func end(exit guest.Exit, err error) {
	var killed errSignal
	switch {
	case errors.As(err, &killed):
		dieBy(killed.number)
	case err != nil:
		fmt.Fprintf(os.Stderr, "slurm-v: node %s: %v\n", os.Getenv("SLURMD_NODENAME"), err)
		os.Exit(1)
	case exit.Signal != 0:
		dieBy(unix.Signal(exit.Signal))
	}
	os.Exit(exit.Code)
}

func runExec(o execOptions, program []string) (guest.Exit, error) {
	signals := catchSignals()
	ctx, stop := untilSignal(signals)
	session, reply, err := o.reachVM(ctx)
	if err != nil {
		return guest.Exit{}, err
	}
	defer session.Close()
	task := &relay.Task{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr, Signals: signals}
	if err := o.joinPMI(task, reply); err != nil {
		return guest.Exit{}, err
	}
	command := command(program, reply.VM.Name, task.PMI != nil)
	command.Env = append(command.Env, o.deviceEnv(reply)...)
	if o.mpirun {
		command.Env = mpirun.Env(command.Env, mpirun.Dir(os.Getuid()))
	}
	if o.terminal {
		restore, err := o.useTerminal(task, &command)
		if err != nil {
			return guest.Exit{}, err
		}
		defer restore()
	}
	process, err := session.Start(ctx, command)
	stop()
	if err != nil {
		return guest.Exit{}, o.lostIn(reply, err)
	}
	exit, err := task.Run(process)
	return exit, o.lostIn(reply, err)
}

// lostIn names the VM whose loss is the error, and says how it was lost if the
// agent knows.
func (o execOptions) lostIn(reply nodeagent.Reply, err error) error {
	if !errors.Is(err, guest.ErrLost) {
		return err
	}
	if cause := o.causeOfLoss(reply.VM); cause != "" {
		return errors.New(cause)
	}
	return fmt.Errorf("%s is gone, and the program with it; slurmv logs may say why (%w)", reply.VM.Name, err)
}

// causeTimeout bounds the wait for libvirt to tell of a guest's end. A guest that powers
// itself off ends the agent in it first, and may have much else to end.
const causeTimeout = time.Minute

// causeOfLoss asks the agent, which hears of a guest's end from libvirt, a
// moment after the channel has broken.
func (o execOptions) causeOfLoss(vm *nodeagent.VM) string {
	ctx, cancel := context.WithTimeout(context.Background(), causeTimeout)
	defer cancel()
	for ; ctx.Err() == nil; time.Sleep(100 * time.Millisecond) {
		client, err := dialAgent(ctx, o.config)
		if err != nil {
			return ""
		}
		node, err := client.PS(ctx)
		_ = client.Close()
		if err != nil {
			return ""
		}
		if cause := o.causeIn(node, vm); cause != "" {
			return cause
		}
	}
	return ""
}

// causeIn is why the program in a VM was lost, by what the agent says of its node.
func (o execOptions) causeIn(node nodeagent.NodeVMs, lost *nodeagent.VM) string {
	for _, vm := range node.VMs {
		if vm.Number == lost.Number && vm.Cause != "" {
			return fmt.Sprintf("%s %s, and the program in it is lost", vm.Name, vm.Cause)
		}
	}
	claim, err := nodeagent.ParseClaim(o.claim)
	if err == nil && !slices.Contains(node.Claims, claim) {
		return fmt.Sprintf("the run has lost its claim on IVShmem device %d, so its program in %s was ended", claim.Device, lost.Name)
	}
	return ""
}

// deviceEnv are the variables of a program that may use an IVShmem device.
func (o execOptions) deviceEnv(reply nodeagent.Reply) []string {
	claim, err := nodeagent.ParseClaim(o.claim)
	if err != nil {
		return nil
	}
	env := vmstep.IVShmemEnv(claim.Device, reply.IVShmemSize)
	if o.mpirun {
		return env // which ranks there are is mpirun's affair
	}
	return append(env, vmstep.IVShmemPeers(os.Getenv)...)
}

// reachVM waits for the agent, which listens once its VMs are up, and opens a
// session to the VM of this task.
func (o execOptions) reachVM(ctx context.Context) (*guest.Session, nodeagent.Reply, error) {
	request := nodeagent.Request{VM: o.vm, Distribution: o.distribution}
	if o.claim != "" {
		claim, err := nodeagent.ParseClaim(o.claim)
		if err != nil {
			return nil, nodeagent.Reply{}, err
		}
		request.Claim = &claim
	}
	if o.vm == nodeagent.ByPlacement {
		place, err := vmstep.PlaceFromEnv(os.Getenv)
		if err != nil {
			return nil, nodeagent.Reply{}, err
		}
		request.LocalID, request.LocalTasks = place.LocalID, place.LocalTasks
	}
	client, err := dialPatiently(ctx, o.config, o.wait)
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

// dialPatiently waits so long for an agent that is not there yet.
func dialPatiently(ctx context.Context, config string, wait time.Duration) (*nodeagent.Client, error) {
	deadline := time.Now().Add(wait)
	for {
		client, err := dialAgent(ctx, config)
		switch {
		case !notUpYet(err):
			return client, err
		case time.Now().After(deadline):
			return nil, errors.New("the VMs of this job are not running here; slurm-v-run --start starts them")
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// command is what the program gets from this task: arguments, environment,
// directory, identity, umask and limits.
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

// joinPMI takes over the descriptor to slurmstepd's PMI server, if there is one.
func (o execOptions) joinPMI(r *relay.Task, reply nodeagent.Reply) error {
	text := os.Getenv("PMI_FD")
	if text == "" {
		return nil
	}
	fd, err := strconv.Atoi(text)
	if err != nil || fd < 3 {
		return fmt.Errorf("PMI_FD=%q is not a descriptor", text)
	}
	place, err := vmstep.PlaceFromEnv(os.Getenv)
	if err != nil {
		return err
	}
	// Non-blocking, so that closing it ends a read that waits.
	if err := unix.SetNonblock(fd, true); err != nil {
		return fmt.Errorf("PMI_FD=%d: %w", fd, err)
	}
	unix.CloseOnExec(fd)
	r.PMI = os.NewFile(uintptr(fd), "PMI")
	r.Rank = pmi.Job{
		Ranks:        place.Ranks,
		VMsPerNode:   len(reply.Node.VMs),
		VM:           reply.VM.Index,
		Distribution: pmi.Distribution(o.distribution),
	}
	return nil
}

// useTerminal makes the task's terminal a mere wire to the program's.
func (o execOptions) useTerminal(r *relay.Task, c *guest.Command) (restore func(), err error) {
	stdin := int(os.Stdin.Fd())
	state, err := term.MakeRaw(stdin)
	if err != nil {
		return nil, fmt.Errorf("--terminal: standard input is no terminal: %w", err)
	}
	r.Size = func() guest.Size {
		columns, rows, _ := term.GetSize(stdin)
		return guest.Size{Rows: uint16(rows), Columns: uint16(columns)}
	}
	size := r.Size()
	c.Terminal = &size
	return func() { _ = term.Restore(stdin, state) }, nil
}

// catchSignals returns all signals that a program may be sent. Not among them
// are those which tell about this process itself, and those which stop it at its
// own terminal; SIGPIPE is caught so that a closed output is an error instead.
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

// untilSignal returns a context that ends when the task is told to end before
// its program runs. After stop the signals are left to others.
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
