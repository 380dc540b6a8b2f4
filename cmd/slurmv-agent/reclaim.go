package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vmlaunch"
)

type reclaimOptions struct {
	config   string
	node     string
	job      uint32
	restart  uint32
	step     uint32
	deadline time.Duration
	task     bool
}

func newReclaim() *cobra.Command {
	o := reclaimOptions{}
	c := &cobra.Command{
		Use:   "reclaim --job JOB",
		Short: "Give back all that a job holds on this node",
		Long: `Give back all that a job holds on this node: its VMs, network and files.

It works from the job's journal, whatever has become of the agent that wrote it,
and may run any number of times; a job without a journal is already clean.
With --step only the journal of that VM step is reclaimed, as only the step that
launched the VMs may end them. With --task a user starts it by sudo in a step of
his job, whose VMs it ends; no other option counts then.

Without --deadline this is the last try of Slurm's own: if something is left, the
node is drained with a reason that names the job, until slurmv clean succeeds.

EXIT STATUS
===========

    0   nothing of the job is left
    1   something is left; the journal keeps it for the next try`,
		Example: "  slurmv-agent reclaim --job 4217",
		Args:    cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if o.task {
				return runTaskReclaim(c.Context())
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
	f.BoolVar(&o.task, "task", false, "reclaim the job of the user who runs this by sudo")
	f.DurationVar(&o.deadline, "deadline", 0, "stop after this `duration`; what is left stays in the journal")
	return c
}

func runReclaim(c *cobra.Command, o reclaimOptions) error {
	ctx, cancel := withDeadline(c.Context(), o.deadline)
	defer cancel()
	cfg, err := config.Load(o.config)
	if err != nil {
		return err
	}
	node, err := nodeName(o.node)
	if err != nil {
		return err
	}
	ids, err := journal.List(cfg.StateDir(node))
	for _, id := range ids {
		if id.Job != o.job || c.Flags().Changed("restart") && id.Restart != o.restart {
			continue
		}
		if c.Flags().Changed("step") && !launchedBy(cfg.StateDir(node), id, o.step) {
			continue
		}
		err = errors.Join(err, vmlaunch.Reclaim(ctx, cfg, node, id))
	}
	// A reclaim with a deadline is followed by one without.
	if err != nil && o.deadline == 0 {
		err = errors.Join(err, drain(c.Context(), node, o.job))
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

// nodeName is the name that Slurm gives to this node: several may share a host,
// so the host's name is only a guess for when nothing better is known.
func nodeName(name string) (string, error) {
	for _, n := range []string{name, os.Getenv("SLURMD_NODENAME")} {
		if n != "" {
			return n, nil
		}
	}
	host, err := hostName()
	if err != nil {
		return "", fmt.Errorf("name this node with --node: %w", err)
	}
	return host, nil
}

// hostName is the host's name without its domain, which node names do not have.
func hostName() (string, error) {
	host, err := os.Hostname()
	host, _, _ = strings.Cut(host, ".")
	return host, err
}
