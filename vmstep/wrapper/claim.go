package wrapper

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmstep"
)

// exitAllClaimed is the exit status of a run with --no-wait if all devices are claimed:
// EX_TEMPFAIL of sysexits.h, "try again later".
const exitAllClaimed = 75

// claimTries bounds how often the step that claims is started. On a very busy machine Slurm
// gives up a step before it has started.
const claimTries = 3

// claimDevice claims an IVShmem device for this run, if the job has any.
func claimDevice(line vmstep.CommandLine, job vmstep.Job, wait time.Duration) (*nodeagent.Claim, error) {
	if job.Devices == 0 && line.MPIShared == vmstep.MPISharedOn {
		return nil, errors.New("--mpi-shm=on: the VMs of this job share no memory; submit it with --ivshmem=1")
	}
	if job.Devices == 0 {
		return nil, nil
	}
	srun, err := slurm.Srun()
	if err != nil {
		return nil, err
	}
	c := claimer{command: vmstep.ClaimCommand(srun, vmstep.AgentPath(), job.First, line, wait), quiet: quiet(line), devices: job.Devices}
	claim, err := c.claim()
	for try := 1; try < claimTries && c.mayTryAgain(err); try++ {
		c.say("Slurm has not started the step that claims an IVShmem device (%v); trying again", err)
		claim, err = c.claim()
	}
	if err != nil {
		return nil, claimError(err)
	}
	return &claim, nil
}

// A claimer claims a device by starting a step.
type claimer struct {
	command []string
	quiet   bool
	devices int
	waited  bool // the step has said that all devices are claimed
}

// claim starts the step that claims. The step lives as long as this process, which is about
// to become srun. The step notices the end of this process, however it ends, by the end of
// its standard input.
func (c *claimer) claim() (nodeagent.Claim, error) {
	step := claimStep{command: c.command}
	if err := step.start(); err != nil {
		return nodeagent.Claim{}, err
	}
	claim, err := vmstep.AwaitClaim(step.says, func() {
		c.waited = true
		c.say("waiting for an IVShmem device: all %d are claimed by other slurm-v-run of this job", c.devices)
	})
	if err == nil {
		err = step.keep()
	}
	if err != nil {
		step.end()
	}
	return claim, err
}

// mayTryAgain reports whether the step ended silently. Such a step has claimed nothing, and
// nobody has cancelled it because it waited too long.
func (c *claimer) mayTryAgain(err error) bool {
	var ended *vmstep.StepError
	return errors.As(err, &ended) && !c.waited
}

func (c *claimer) say(format string, args ...any) {
	if !c.quiet {
		fmt.Fprintf(os.Stderr, "slurm-v: "+format+"\n", args...)
	}
}

func claimError(err error) error {
	if errors.Is(err, vmstep.ErrAllClaimed) {
		return err
	}
	return fmt.Errorf("claim an IVShmem device: %w", err)
}

// A claimStep is the srun of the step that claims. It has a session of its own, so neither
// Ctrl-C nor the end of the terminal reaches it.
type claimStep struct {
	command []string
	srun    *exec.Cmd
	life    *os.File // writes to its standard input; open as long as the claim is wanted
	says    *os.File // reads its output
}

func (s *claimStep) start() error {
	in, life, err := os.Pipe()
	if err != nil {
		return err
	}
	defer in.Close()
	says, out, err := os.Pipe()
	if err != nil {
		return errors.Join(err, life.Close())
	}
	defer out.Close()
	s.life, s.says = life, says
	s.srun = &exec.Cmd{
		Path: s.command[0], Args: s.command, Env: vmstep.StepEnv(os.Environ()), Dir: "/",
		Stdin: in, Stdout: out, Stderr: out, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	err = s.srun.Start()
	// Nobody reads the output once this process has become srun; a full pipe must not block
	// the step.
	return errors.Join(err, unix.SetNonblock(int(out.Fd()), true))
}

// keep keeps both pipes open when this process becomes srun: the step would otherwise be
// killed by its next write.
func (s *claimStep) keep() error {
	_, err := unix.Dup(int(s.life.Fd()))
	if err == nil {
		_, err = unix.Dup(int(s.says.Fd()))
	}
	return err
}

// end ends the step and waits for its end, so that the next step may start at once.
func (s *claimStep) end() {
	_ = s.life.Close()
	_ = s.srun.Wait()
	_ = s.says.Close()
}
