package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric/controller"
	"github.com/slurm-v/slurm-v/fabric/controller/remote"
)

func newFabric() *cobra.Command {
	c := &cobra.Command{
		Use:   "fabric COMMAND",
		Short: "See and manage jobs' own tags on the fabric",
		Long: `See and manage the tags that keep jobs apart on the fabric: VLANs, InfiniBand P_Keys and
Slingshot VNIs.

slurmctld runs reserve and release for each job with tags. pool shows which tags are
free, and what keeps the others. docs/fabric.md says how a site sets this up.`,
	}
	c.AddCommand(newFabricReserve(), newFabricRelease(), newFabricSweep(),
		newFabricPool(), newFabricJobInfo(), newFabricList(), newFabricClean(),
		newFabricCollectives(), newFabricKey(), newFabricPartitions())
	for _, sub := range c.Commands() {
		sub.DisableFlagsInUseLine = true
	}
	return c
}

// fabricOptions are those of commands that work on the ledger.
type fabricOptions struct{ config string }

func (o *fabricOptions) add(c *cobra.Command) {
	c.Flags().StringVar(&o.config, "config", config.Path, "read the configuration from `file`")
}

func (o fabricOptions) open(ctx context.Context, c *cobra.Command) (*controller.Controller, error) {
	cfg, err := config.Load(o.config)
	if err != nil {
		return nil, err
	}
	ctl, err := controller.Open(ctx, cfg, warnings(c))
	if err != nil {
		return nil, err
	}
	return ctl, remote.Set(ctl)
}

// warnings prints sentences to the command's words.
func warnings(c *cobra.Command) func(string) {
	return func(sentence string) { fmt.Fprintln(c.ErrOrStderr(), "slurmv:", sentence) }
}
