// Package commands has the commands of slurmv fabric: what slurmctld runs for each job with
// tags, and what administrators and users see of the tags.
package commands

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric/controller"
	"github.com/slurm-v/slurm-v/fabric/controller/remote"
)

// New returns the command fabric with all its commands.
func New() *cobra.Command {
	c := &cobra.Command{
		Use:   "fabric COMMAND",
		Short: "See and manage jobs' own tags on the fabric",
		Long: `See and manage the tags that keep jobs apart on the fabric: VLANs, InfiniBand P_Keys and
Slingshot VNIs.

slurmctld runs reserve and release for each job with tags. pool shows which tags are
free, and what keeps the others. docs/fabric.md says how a site sets this up.`,
	}
	c.AddCommand(newReserve(), newRelease(), newSweep(),
		newPool(), newJobInfo(), newList(), newClean(),
		newCollectives(), newKey(), newPartitions())
	for _, sub := range c.Commands() {
		sub.DisableFlagsInUseLine = true
	}
	return c
}

// ledgerOptions are those of commands that work on the ledger.
type ledgerOptions struct{ config string }

func (o *ledgerOptions) add(c *cobra.Command) {
	c.Flags().StringVar(&o.config, "config", config.Path, "read the configuration from `file`")
}

func (o ledgerOptions) open(ctx context.Context, c *cobra.Command) (*controller.Controller, error) {
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
