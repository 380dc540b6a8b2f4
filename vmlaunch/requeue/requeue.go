// Package requeue sends a job to other nodes if it does not fit on this one.
//
// Slurm counts VFs and bandwidth per node. A job may not fit although the sums do: two
// half-free cards cannot hold a VF that needs a whole one. The node itself works, so it is
// not drained.
package requeue

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/apart"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vfpool"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// maxRequeues bounds how often a job is sent elsewhere.
const maxRequeues = 3

// Elsewhere sends a job that does not fit on this node back into the queue, if the site and
// the job allow it, and says so in the error. It returns every other cause unchanged.
func Elsewhere(ctx context.Context, c slurm.Client, cfg config.Config, job plan.Job, cause error) error {
	if !errors.Is(cause, vfpool.ErrNoFit) || !cfg.VF.Requeue {
		return cause
	}
	record, err := c.Job(ctx, job.ID.Job)
	if err == nil {
		err = refusal(record, cause)
	} else {
		err = errors.Join(cause, err)
	}
	if err != nil {
		return err
	}
	if err := start(c, job, cause); err != nil {
		return errors.Join(cause, err)
	}
	return fmt.Errorf("%w; it goes back into the queue, for other nodes", cause)
}

// refusal says why a job is not requeued; nil if it is.
func refusal(record slurm.Job, cause error) error {
	switch {
	case !record.Batch || !record.Requeue:
		return fmt.Errorf("%w; it is not sent to other nodes, as it was not submitted by sbatch --requeue", cause)
	case record.Restarts >= maxRequeues:
		return fmt.Errorf("%w; it has been sent to other nodes %d times and is not again", cause, record.Restarts)
	}
	return nil
}

// Command is the command of slurmv-agent that calls [Run], with the options that [start]
// passes.
const Command = "requeue"

// start starts [Command] in a process that outlives the job's: requeuing kills the job's
// processes, this one too, and so does the end of the batch script, which may come as soon
// as it reads the error.
func start(c slurm.Client, job plan.Job, cause error) error {
	return apart.Start(Command, "--job", strconv.FormatUint(uint64(job.ID.Job), 10), "--node", job.Node,
		"--reason", cause.Error(), "--slurm-bin", c.Bin)
}

// patience bounds how long the job may take to end on this node.
const patience = 10 * time.Minute

// Run requeues the job, from a process that [apart.Start] has started.
func Run(ctx context.Context, c slurm.Client, job uint32, node, reason string) error {
	if err := apart.Stand(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return c.RequeueElsewhere(ctx, job, node, fmt.Sprintf("slurm-v: not on %s: %s", node, reason))
}
