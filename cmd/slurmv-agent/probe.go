package main

import (
	"encoding/json"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/check/probe"
)

// newProbe is the part of slurmv check that needs libvirt, or root.
func newProbe() *cobra.Command {
	var path, node string
	c := &cobra.Command{
		Use:    "probe",
		Short:  "Try what a launch needs of this node, for slurmv check",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := config.Load(path)
			if err != nil {
				return err
			}
			return json.NewEncoder(c.OutOrStdout()).Encode(probe.Run(c.Context(), cfg, administrator(cfg), node))
		},
	}
	c.Flags().StringVar(&path, "config", config.Path, "read the configuration from `file`")
	c.Flags().StringVar(&node, "node-name", "", "this node's `name` in Slurm")
	return c
}
