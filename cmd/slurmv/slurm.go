package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/vmstep"
)

// ask runs a program of Slurm's and returns what it prints.
func ask(ctx context.Context, program string, args ...string) (string, error) {
	c := exec.CommandContext(ctx, program, args...)
	c.Env = askEnv(os.Environ())
	out, err := c.Output()
	if err != nil {
		return "", slurmError(program, err)
	}
	return string(out), nil
}

// slurmError says what the program said; an exit status alone helps nobody.
func slurmError(program string, err error) error {
	var exit *exec.ExitError
	switch {
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("%s is not in PATH: load the module of your site's Slurm, or add its bin directory", program)
	case errors.As(err, &exit) && len(bytes.TrimSpace(exit.Stderr)) > 0:
		return fmt.Errorf("%s: %s", program, bytes.TrimSpace(exit.Stderr))
	}
	return fmt.Errorf("%s: %w", program, err)
}

// askEnv leaves out what would filter or reshape the answer.
func askEnv(env []string) []string {
	kept := slices.DeleteFunc(slices.Clone(env), func(entry string) bool {
		return strings.HasPrefix(entry, "SQUEUE_") || strings.HasPrefix(entry, "SACCT_") || strings.HasPrefix(entry, "SLURM_TIME_FORMAT=")
	})
	return append(kept, "SLURM_TIME_FORMAT=%s")
}

// stepEnv is the environment of a step that asks the agents of job: nothing of
// the job that slurmv itself may be running in, and no VM options, so that our
// plugin takes no notice.
func stepEnv(env []string, job vmJob) []string {
	kept := slices.DeleteFunc(vmstep.StepEnv(env), func(entry string) bool {
		return strings.HasPrefix(entry, "SLURM_JOB_ID=") || strings.HasPrefix(entry, "SLURM_JOBID=") ||
			strings.HasPrefix(entry, "SLURM_RESTART_COUNT=") ||
			strings.HasPrefix(entry, "SLURM_SPANK_") || strings.HasPrefix(entry, "_SLURM_SPANK_")
	})
	return append(kept, fmt.Sprintf("SLURM_RESTART_COUNT=%d", job.Restart))
}

// stepArgs are srun's arguments for a step of job that runs the agent on the named
// node, or on all of them. It takes nothing from the programs of the job: it
// overlaps with them and needs no memory of its own.
func stepArgs(job vmJob, node string, agent []string) []string {
	args := []string{"--overlap", fmt.Sprintf("--jobid=%d", job.ID), "--mpi=none", "--cpu-bind=none", "--mem=0",
		"--no-kill", "--kill-on-bad-exit=0", "--wait=0", "--quiet", "--quit-on-interrupt", "--job-name=slurmv"}
	if node == "" {
		args = append(args, fmt.Sprintf("--nodes=%d", job.Nodes), fmt.Sprintf("--ntasks=%d", job.Nodes), "--ntasks-per-node=1")
	} else {
		args = append(args, "--nodes=1", "--ntasks=1", "--nodelist="+node)
	}
	return append(append(args, agentPath()), agent...)
}
