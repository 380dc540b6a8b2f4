package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/nodeagent"
	"github.com/slurm-v/slurm-v/vmstep"
)

// exitAllClaimed is the exit status of a run that was not to wait for a device:
// EX_TEMPFAIL of sysexits.h, "try again later".
const exitAllClaimed = 75

// claimDevice claims an IVShmem device for this run, if the job has any. The claim
// lives as long as this process, which is about to become srun: it is a step on the
// job's first node whose standard input ends then, however this process ends.
func claimDevice(line vmstep.CommandLine, job vmstep.Job, wait time.Duration) (*nodeagent.Claim, error) {
	if job.Devices == 0 {
		return nil, nil
	}
	srun, err := srunPath()
	if err != nil {
		return nil, err
	}
	h := holder{command: vmstep.ClaimCommand(srun, agentPath(), line, wait)}
	if err := h.start(); err != nil {
		return nil, fmt.Errorf("claim an IVShmem device: %w", err)
	}
	claim, err := vmstep.AwaitClaim(h.says, func() {
		if !quiet(line) {
			fmt.Fprintf(os.Stderr, "slurm-v: waiting for an IVShmem device: all %d are claimed by other slurm-v-run of this job\n", job.Devices)
		}
	})
	if err == nil {
		err = h.keep()
	}
	if err != nil {
		h.end()
		return nil, claimError(err)
	}
	return &claim, nil
}

func claimError(err error) error {
	if errors.Is(err, vmstep.ErrAllClaimed) {
		return err
	}
	return fmt.Errorf("claim an IVShmem device: %w", err)
}

// A holder is the srun of the step that claims. Neither Ctrl-C nor the end of the
// terminal reach it.
type holder struct {
	command []string
	srun    *exec.Cmd
	life    *os.File // its standard input
	says    *os.File // what it says
}

func (h *holder) start() error {
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
	h.life, h.says = life, says
	h.srun = &exec.Cmd{
		Path: h.command[0], Args: h.command, Env: vmstep.StepEnv(os.Environ()), Dir: "/",
		Stdin: in, Stdout: out, Stderr: out, SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	err = h.srun.Start()
	// Nobody reads once this process is srun; a full pipe must not stop the holder.
	return errors.Join(err, unix.SetNonblock(int(out.Fd()), true))
}

// keep leaves both pipes open in what this process becomes: a holder that spoke to
// nobody would be killed.
func (h *holder) keep() error {
	_, err := unix.Dup(int(h.life.Fd()))
	if err == nil {
		_, err = unix.Dup(int(h.says.Fd()))
	}
	return err
}

// end waits until the step has ended, too: the next one may be started at once.
func (h *holder) end() {
	_ = h.life.Close()
	_ = h.srun.Wait()
}
