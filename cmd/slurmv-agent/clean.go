package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmlaunch/clean"
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

Then it removes what ended jobs of all nodes left in OpenStack, for 40 seconds at most. What
it cannot remove there is a warning. If slurmd starts it, it draws lots for this with the other nodes.

If slurmd starts it, it ends after 55 seconds, since slurmd kills health checks after a
minute. It says which jobs it has not reached, and leaves them to the next one.

EXIT STATUS
===========

    0   nothing is left of ended jobs on this node
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
	return cleaning(c, cfg, node).All(c.Context())
}

func cleaning(c *cobra.Command, cfg config.Config, node string) clean.Node {
	return clean.Node{Config: cfg, Client: administrator(cfg), Name: node, Out: c.OutOrStdout(), Words: c.ErrOrStderr()}
}
