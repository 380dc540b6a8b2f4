package main

import (
	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/vmstep/task"
)

func newHold() *cobra.Command {
	var agent task.Agent
	cmd := &cobra.Command{
		Use:   "hold",
		Short: "Be the task of the VM step on this node",
		Long: `Be the task of the VM step on this node, as the job's user.

slurm-v-run starts it. It tells slurm-v-run's keeper which VMs this node has,
takes the map of all VMs to the agent, and stays until the step ends. It ignores
every signal but TERM, because signals to the job are for its programs.`,
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE:   func(*cobra.Command, []string) error { return agent.Hold() },
	}
	cmd.Flags().StringVar(&agent.Config, "config", config.Path, "read the configuration from this `file`")
	return cmd
}
