package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmlaunch/requeue"
)

func newRequeue() *cobra.Command {
	var job uint32
	var node, reason string
	var client slurm.Client
	c := &cobra.Command{
		Use:    requeue.Command + " --job JOB --node NODE",
		Short:  "Send a job that does not fit on this node to others",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			client.Env = os.Environ()
			return requeue.Run(c.Context(), client, job, node, reason)
		},
	}
	c.Flags().Uint32Var(&job, "job", 0, "the job's `id`")
	c.Flags().StringVar(&node, "node", "", "the `node` that it does not fit on")
	c.Flags().StringVar(&client.Bin, "slurm-bin", "", "the `directory` of Slurm's commands")
	c.Flags().StringVar(&reason, "reason", "", "the `words` that tell why")
	return c
}
