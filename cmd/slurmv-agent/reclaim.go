package main

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/apart"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmlaunch"
	"github.com/slurm-v/slurm-v/vmlaunch/drain"
	"github.com/slurm-v/slurm-v/vmlaunch/entitle"
)

type reclaimOptions struct {
	config   string
	node     string
	job      uint32
	restart  uint32
	step     uint32
	deadline time.Duration
	last     bool
	task     bool
	fabric   bool
}

func newReclaim() *cobra.Command {
	o := reclaimOptions{}
	c := &cobra.Command{
		Use:   "reclaim --job JOB",
		Short: "Give back everything that a job holds on this node",
		Long: `Give back everything that a job holds on this node: its VMs, network and files.

It works from the job's journal, even if the agent that wrote it is dead, and may run
any number of times. A job without a journal is clean.

With --step it reclaims only the journal of this VM step: only the step that launched
the VMs may end them. With --task a user starts it with sudo in a step of their job,
and it ends this job's VMs; all other options are ignored.

With --last this is Slurm's last try. If more than files is left, the node is drained
with a reason that names the job, until slurmv clean succeeds. Files that take longer
are removed in the background, for some minutes. It also gives back the job's tags on the
fabric, and confirms that to the controller.

EXIT STATUS
===========

    0   nothing of the job is left, except perhaps files in the trash
    1   something is left; the journal keeps it for the next try`,
		Example: "  slurmv-agent reclaim --job 4217 --deadline 2m --last",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.task {
				return reclaimByTask(c.Context())
			}
			return runReclaim(c, o)
		},
	}
	f := c.Flags()
	f.StringVar(&o.config, "config", config.Path, "read the configuration from `file`")
	f.StringVar(&o.node, "node", os.Getenv("SLURMV_NODE"), "this node's `name` in Slurm")
	f.Uint32Var(&o.job, "job", 0, "reclaim the job with this `id`")
	f.Uint32Var(&o.restart, "restart", 0, "only this `restart` of the job")
	f.Uint32Var(&o.step, "step", 0, "only if this `step` launched the VMs")
	f.BoolVar(&o.task, "task", false, "reclaim the job of the user who runs this with sudo")
	f.DurationVar(&o.deadline, "deadline", 0, "stop after this `duration`; what is left stays in the journal")
	f.BoolVar(&o.last, "last", false, "drain the node if something is left")
	f.BoolVar(&o.fabric, "fabric", false, "with --last: the job has a reservation of tags, so the controller waits for this node's confirmation")
	return c
}

func runReclaim(c *cobra.Command, o reclaimOptions) error {
	cfg, err := config.Load(o.config)
	if err != nil {
		return err
	}
	node, err := slurm.NodeName(o.node)
	if err != nil {
		return err
	}
	ids, err := o.journals(c, cfg.StateDir(node))
	ctx, cancel := withDeadline(c.Context(), o.deadline)
	defer cancel()
	failed := vmlaunch.ReclaimAll(ctx, cfg, node, ids)
	if err != nil {
		failed = append(failed, err)
	}
	if o.last {
		failed = append(failed, endLast(c.Context(), o, cfg, node, failed))
	}
	return errors.Join(failed...)
}

// reclaimByTask gives back everything that the caller's job holds on this node.
func reclaimByTask(ctx context.Context) error {
	cfg, err := config.Load(config.Path)
	if err != nil {
		return err
	}
	job, err := entitle.FromSudo(ctx, slurm.Client{Bin: cfg.Slurm.Bin}, os.Getenv)
	if err != nil {
		return err
	}
	return vmlaunch.Reclaim(ctx, cfg, job.Node, job.ID)
}

// journals returns the journals that the command line chooses.
func (o reclaimOptions) journals(c *cobra.Command, state string) (chosen []journal.ID, err error) {
	ids, err := journal.List(state)
	for _, id := range ids {
		if id.Job != o.job || c.Flags().Changed("restart") && id.Restart != o.restart {
			continue
		}
		if c.Flags().Changed("step") && !launchedBy(state, id, o.step) {
			continue
		}
		chosen = append(chosen, id)
	}
	return chosen, err
}

// endLast ends Slurm's last try: it drains the node if more than files is left, ends the
// job's tags, and has the rest of the files removed in the background, so that Slurm need
// not wait.
func endLast(ctx context.Context, o reclaimOptions, cfg config.Config, node string, failed []error) (err error) {
	err = errors.Join(drain.If(ctx, slurm.Client{Bin: cfg.Slurm.Bin}, node, o.job, failed), endTags(ctx, o, cfg, node), journal.Prepare(cfg.StateDir(node)))
	if vmlaunch.TrashLeft(cfg, node) {
		err = errors.Join(err, apart.Start("empty", "--config", o.config, "--node", node))
	}
	return err
}

func launchedBy(state string, id journal.ID, step uint32) bool {
	s, err := journal.Read(state, id)
	return err == nil && s.Header.Step == step
}

func withDeadline(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, d)
}
