// Package commands has the commands of slurmv fabric: what slurmctld runs for each job with
// tags, and what administrators and users see of the tags.
package commands

import (
	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
)

// New returns the command fabric with all its commands.
func New(controller Controller) *cobra.Command {
	c := &cobra.Command{
		Use:   "fabric COMMAND",
		Short: "See and manage jobs' own tags on the fabric",
		Long: `See and manage the tags that keep jobs apart on the fabric: VLANs, InfiniBand P_Keys and
Slingshot VNIs.

slurmctld runs reserve and release for each job with tags. pool shows which tags are
free, and what keeps the others. docs/fabric.md says how a site sets this up.`,
	}
	c.AddCommand(newReserve(controller), newRelease(controller), newSweep(controller),
		newPool(controller), newJobInfo(controller), newList(), newClean(),
		newCollectives(), newKey(), newPartitions(controller))
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
