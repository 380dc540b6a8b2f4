package entitle

import (
	"context"
	"fmt"
	"os"
	"strconv"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric/node"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/slurm/cgroup"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmstep"
)

// FromPlugin reads the plugin's SLURMV_ variables, which describe the job. Slurm vouches
// for the job's number, step, owner, node and resources on the node. Users can change the
// rest: the restart count (in a step of Slurm 22.05), and SLURMV_SPEC, which Launch
// validates.
func FromPlugin(env func(string) string) (plan.Job, error) {
	e := environment{get: env}
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

		Requested: vmstep.RequestedAt(env),
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

// TagsFromPlugin reads the plugin's variables about a job whose tags on the fabric are to be
// set up. As with FromPlugin, only the restart count may be the user's.
func TagsFromPlugin(env func(string) string) (node.Job, error) {
	e := environment{get: env}
	job := node.Job{
		ID:   journal.ID{Job: e.number("SLURMV_JOB"), Restart: e.number("SLURMV_RESTART")},
		Step: e.number("SLURMV_STEP"), UID: e.number("SLURMV_UID"), GID: e.number("SLURMV_GID"),
		Cores: int(e.number("SLURMV_CPUS")),
	}
	e.text("SLURMV_NODE")
	return job, e.err
}

// CheckOwnPlace returns an error unless this process is in the step that the plugin's
// variables name. proc is where /proc is mounted.
func CheckOwnPlace(proc string, env func(string) string) error {
	e := environment{get: env}
	job, step := e.number("SLURMV_JOB"), e.number("SLURMV_STEP")
	if e.err != nil {
		return e.err
	}
	return cgroup.CheckStep(proc, os.Getpid(), job, step)
}

// environment reads variables and keeps the first error.
type environment struct {
	get func(string) string
	err error
}

func (e *environment) text(name string) string {
	value := e.get(name)
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

// AddVFs asks slurmctld, once per launch, which VFs the job owns, if Slurm counts VFs. The
// request cannot be used for this: the user writes it.
func AddVFs(ctx context.Context, c slurm.Client, cfg config.Config, job *plan.Job) error {
	if !countsVFs(cfg, *job) {
		return nil
	}
	record, err := c.Job(ctx, job.ID.Job)
	if err != nil {
		return err
	}
	has, err := c.Allocation(ctx, record.Name, job.Node)
	job.VFs, job.VFMbps = ownedVFs(has)
	return err
}

func ownedVFs(has slurm.Allocation) (vfs int, mbps uint32) {
	return int(has.GRES(jobspec.GRESVF)), has.GRES(jobspec.GRESVFBW)
}

// countsVFs reports whether the job asks for VFs that Slurm counts.
func countsVFs(cfg config.Config, job plan.Job) bool {
	return cfg.Slurm.GRES && len(job.Spec.SRIOV.VFs) > 0
}
