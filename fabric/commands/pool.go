package commands

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/controller"
	"github.com/slurm-v/slurm-v/internal/cli"
)

type poolOptions struct {
	ledgerOptions
	output string
}

func newPool() *cobra.Command {
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
		RunE: func(c *cobra.Command, _ []string) error { return runPool(c, o) },
	}
	o.add(c)
	cli.AddOutput(c, &o.output)
	return c
}

func runPool(c *cobra.Command, o poolOptions) error {
	if err := cli.CheckOutput(o.output); err != nil {
		return err
	}
	ctl, err := o.open(c.Context(), c)
	if err != nil {
		return err
	}
	_, sweepErr := ctl.Sweep(c.Context())
	states, err := ctl.Pools(c.Context(), fabric.Pools(ctl.Site))
	if err != nil {
		return err
	}
	rows := controller.PoolRows(states)
	if len(rows) == 0 {
		fmt.Fprintln(c.ErrOrStderr(), "This site has no pools: see [fabric] in", o.config)
	}
	if o.output == "json" {
		err = cli.PrintJSON(c.OutOrStdout(), rows)
	} else if len(rows) > 0 {
		err = controller.WritePools(c.OutOrStdout(), rows)
	}
	if err == nil {
		err = sweepErr
	}
	return err
}
