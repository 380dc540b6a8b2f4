// Package wrapper is slurm-v-run. It makes the job's keeper start the VMs, if they are not
// there, shows their progress, and then becomes srun. The keeper is another process of the
// same program. slurm-v-run also starts an srun that claims an IVShmem device, and some
// that prepare the VMs for a user's own mpirun.
package wrapper

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"golang.org/x/term"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmstep"
)

// ExitStatus is slurm-v-run's exit status for an error of [Act].
func ExitStatus(err error) int {
	var usage *vmstep.UsageError
	switch {
	case errors.As(err, &usage):
		return 2
	case errors.Is(err, vmstep.ErrAllClaimed):
		return exitAllClaimed
	}
	return 1
}

// Act obeys the words behind slurm-v-run. help is the text for --help. Act returns only if
// this process has not become srun.
func Act(words []string, help string) error {
	if len(words) == 1 {
		switch words[0] {
		case keeperWord:
			return keeper()
		case starterWord:
			return starter()
		}
	}
	return run(words, help)
}

func run(words []string, help string) error {
	line, err := vmstep.Split(words, os.Getenv, slurm.SrunHelp)
	switch {
	case err != nil:
		return err
	case line.Help:
		_, err = io.WriteString(os.Stdout, help)
		return err
	case line.Version:
		_, err = fmt.Println("slurm-v-run", config.Version)
		return err
	}
	job, err := vmstep.JobFromEnv(os.Getenv)
	if err != nil {
		return err
	}
	if err := sameJob(line, job); err != nil {
		return err
	}
	state, err := awaitVMs(context.Background(), line, job)
	if err != nil || line.Start {
		return err
	}
	wait := time.Duration(0)
	if state.State == vmstep.StateElsewhere {
		wait = job.ReadyTimeout
	}
	if line.Launcher == "ssh" {
		return runMpirun(context.Background(), line, job, wait)
	}
	return becomeSrun(line, job, wait)
}

// sameJob refuses another job's id in --jobid: slurm-v-run only reaches the VMs of its own
// job.
func sameJob(line vmstep.CommandLine, job vmstep.Job) error {
	id, given := line.Given("jobid")
	if !given || id == fmt.Sprint(job.ID) {
		return nil
	}
	return fmt.Errorf("--jobid=%s: this is job %d, and slurm-v-run works only inside the job that has the VMs", id, job.ID)
}

// awaitVMs returns when the VMs are ready or, with --start, are starting.
func awaitVMs(ctx context.Context, line vmstep.CommandLine, job vmstep.Job) (vmstep.Event, error) {
	client, err := vmstep.Connect(ctx, vmstep.Addresses(os.Getuid(), job), line.Start, startKeeper)
	if err != nil {
		return vmstep.Event{}, err
	}
	defer client.Close()
	if line.Start && !client.Now.Over() {
		return client.Now, nil
	}
	show := func(vmstep.Event) {}
	if !quiet(line) && !line.Start {
		display := &vmstep.Display{Out: os.Stderr, Terminal: term.IsTerminal(int(os.Stderr.Fd()))}
		show = display.Show
	}
	state, err := client.Wait(show)
	if err != nil && client.Now.State == vmstep.StateEnded {
		err = fmt.Errorf("%w (slurm-v-run --start starts new ones)", err)
	}
	return state, err
}

func quiet(line vmstep.CommandLine) bool {
	_, quiet := line.Given("quiet")
	return quiet
}

// becomeSrun replaces this process by srun, which runs the program.
func becomeSrun(line vmstep.CommandLine, job vmstep.Job, wait time.Duration) error {
	srun, err := slurm.Srun()
	if err != nil {
		return err
	}
	claim, err := claimDevice(line, job, wait)
	if err != nil {
		return err
	}
	ticket := vmstep.Ticket{Wait: wait, Claim: claim}
	return become(vmstep.ProgramCommand(srun, vmstep.RelayPath(), line, ticket), os.Environ())
}

func become(args, env []string) error {
	if err := syscall.Exec(args[0], args, env); err != nil {
		return fmt.Errorf("run %s: %w", args[0], err)
	}
	return nil
}
