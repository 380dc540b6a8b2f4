package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	fabricnode "github.com/slurm-v/slurm-v/fabric/node"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmlaunch"
	"github.com/slurm-v/slurm-v/vmlaunch/drain"
)

func newClean() *cobra.Command {
	var path, node string
	c := &cobra.Command{
		Use:   "clean",
		Short: "Reclaim what ended jobs left on this node",
		Long: `Reclaim what ended jobs left on this node, for example after a power cut.

It asks Slurm which jobs run on the node and reclaims the journals of all other jobs. It
gives back their tags on the fabric, too, and confirms that to the controller.
Run it as HealthCheckProgram and when the node boots. If the node was drained because a
job left something, it is resumed when it is clean.

EXIT STATUS
===========

    0   nothing is left of ended jobs
    1   something is left, or Slurm did not say what runs`,
		Example: "  slurmv-agent clean --node n1",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return runClean(c, path, node) },
	}
	c.Flags().StringVar(&path, "config", config.Path, "read the configuration from `file`")
	c.Flags().StringVar(&node, "node", os.Getenv("SLURMV_NODE"), "this node's `name` in Slurm")
	return c
}

func runClean(c *cobra.Command, path, name string) error {
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	node, err := slurm.NodeName(name)
	if err != nil {
		return err
	}
	client := administrator(cfg)
	cleaned, err := vmlaunch.Clean(c.Context(), cfg, node, func(ctx context.Context) (map[journal.ID]bool, error) {
		return running(ctx, client, node)
	})
	inCloud, cloudErr := vmlaunch.CleanCloud(c.Context(), cfg, client.ActiveRuns)
	err = errors.Join(err, cloudErr)
	for _, id := range append(cleaned, inCloud...) {
		fmt.Fprintln(c.OutOrStdout(), "reclaimed job", id)
	}
	err = errors.Join(err, cleanFabric(c, cfg, node, fabricnode.Cleaning{Patience: cleanPatience}))
	if err != nil {
		return err
	}
	// Resume the node even if nothing was reclaimed now: a later start of the same job, or
	// an earlier clean that failed afterwards, may have removed the reason for the drain.
	return drain.Resume(c.Context(), client, node)
}

// cleanPatience is how long clean waits for CXI services that are in use.
const cleanPatience = 5 * time.Second

// running returns the jobs that have not given up the node yet.
func running(ctx context.Context, c slurm.Client, node string) (map[journal.ID]bool, error) {
	runs, err := c.JobsOn(ctx, node)
	jobs := map[journal.ID]bool{}
	for _, run := range runs {
		jobs[journal.ID(run)] = true
	}
	return jobs, err
}
