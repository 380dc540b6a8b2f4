package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/apart"
	"github.com/slurm-v/slurm-v/vmlaunch"
)

// emptyPatience bounds how long files of ended jobs are removed in the background.
const emptyPatience = 5 * time.Minute

func newEmpty() *cobra.Command {
	var path, node string
	c := &cobra.Command{
		Use:    "empty --node NODE",
		Short:  "Remove files that ended jobs left, in the background",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			cfg, err := config.Load(path)
			if err != nil {
				return err
			}
			if err := apart.Stand(); err != nil {
				return err
			}
			vmlaunch.EmptyTrash(c.Context(), cfg, node, emptyPatience)
			return nil
		},
	}
	c.Flags().StringVar(&path, "config", config.Path, "read the configuration from `file`")
	c.Flags().StringVar(&node, "node", "", "this node's `name` in Slurm")
	return c
}
