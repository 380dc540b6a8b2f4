package commands

import (
	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/internal/cli"
)

type poolOptions struct {
	ledgerOptions
	output string
}

func newPool(controller Controller) *cobra.Command {
	var o poolOptions
	c := &cobra.Command{
		Use:   "pool [flags]",
		Short: "Show which tags are free, and what keeps the others",
		Long: `Show the pools of tags: how many are free, reserved for running jobs, being released,
cooling, and in quarantine. Below, a line says for each node which tags it has not
released, and why tags are in quarantine. Run it on a controller, as SlurmUser or root.

It first asks slurmctld for confirmations that are already there.

With --output json it prints a list of pools with the keys pool, kind, size, free,
reserved, releasing, cooling, quarantined, last (the last tag given) and taken: a list of
the tags that are not free, with the keys tag, state, jobs, nodes and manager (which have
not confirmed), until and why.

EXIT STATUS
===========

    0   the pools are shown
    1   the ledger cannot be read, or slurmctld did not answer; the pools are shown if they can be
    2   the command line cannot be run`,
		Example: `  slurmv fabric pool
  slurmv fabric pool --output json | jq '.[] | {pool, free}'`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.CheckOutput(o.output); err != nil {
				return err
			}
			return controller.Pool(c, o.config, o.output)
		},
	}
	o.add(c)
	cli.AddOutput(c, &o.output)
	return c
}
