package main

import (
	"fmt"
	"os"
	"strconv"

	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm/cgroup"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmstep"
)

// jobFromEnvironment reads what the plugin says about the job. Slurm vouches for
// its number, step, owner, node and what it owns there. The rest has been in the
// user's hands: the restart count (in a step of Slurm 22.05), and SLURMV_SPEC, which
// Launch validates.
func jobFromEnvironment() (plan.Job, error) {
	e := environment{}
	job := plan.Job{
		ID:     journal.ID{Job: e.number("SLURMV_JOB"), Restart: e.number("SLURMV_RESTART")},
		Step:   e.number("SLURMV_STEP"),
		Node:   e.text("SLURMV_NODE"),
		Rank:   int(e.number("SLURMV_NODE_RANK")),
		Nodes:  int(e.number("SLURMV_NODES")),
		UID:    e.number("SLURMV_UID"),
		GID:    e.number("SLURMV_GID"),
		CPUs:   int(e.number("SLURMV_CPUS")),
		Memory: int64(e.number("SLURMV_MEM")),

		Requested: vmstep.RequestedAt(os.Getenv),
	}
	if e.err != nil {
		return plan.Job{}, e.err
	}
	spec, err := jobspec.Decode(e.text("SLURMV_SPEC"))
	if err != nil {
		return plan.Job{}, fmt.Errorf("the job's VM options: %w", err)
	}
	job.Spec = spec
	return job, e.err
}

// checkOwnPlace refuses to act for a step that this process is not in.
func checkOwnPlace(proc string) error {
	e := environment{}
	job, step := e.number("SLURMV_JOB"), e.number("SLURMV_STEP")
	if e.err != nil {
		return e.err
	}
	return cgroup.CheckStep(proc, os.Getpid(), job, step)
}

// environment reads variables and keeps the first error.
type environment struct{ err error }

func (e *environment) text(name string) string {
	value := os.Getenv(name)
	if value == "" && e.err == nil {
		e.err = fmt.Errorf("%s is not set: this command is started by Slurm's plugin", name)
	}
	return value
}

func (e *environment) number(name string) uint32 {
	n, err := strconv.ParseUint(e.text(name), 10, 32)
	if err != nil && e.err == nil {
		e.err = fmt.Errorf("%s: %w", name, err)
	}
	return uint32(n)
}
