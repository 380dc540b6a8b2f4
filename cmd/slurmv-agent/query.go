package main

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/vmstep/task"
)

// newQuery is the command that slurmv runs in a step of a job to ask the job's agents.
func newQuery() *cobra.Command {
	q := &task.Query{}
	c := &cobra.Command{
		Use:    "query",
		Short:  "Ask the agent of this task's job; slurmv starts it",
		Hidden: true,
	}
	c.PersistentFlags().StringVar(&q.Config, "config", config.Path, "read the configuration from `file`")
	console := question("console", "What a VM has printed", q, q.Console)
	console.Flags().BoolVar(&q.Follow, "follow", false, "go on, and type standard input")
	forward := question("forward", "Connect to a port of a VM", q, q.Forward)
	forward.Flags().Uint16Var(&q.Port, "port", 22, "connect to this TCP `port` of the VM's loopback")
	for _, ofVM := range []*cobra.Command{console, forward} {
		ofVM.Flags().IntVar(&q.VM, "vm", 0, "the VM's `number` in the job")
	}
	c.AddCommand(console, forward,
		&cobra.Command{
			Use:   "ps",
			Short: "Which VMs are there",
			Args:  cobra.NoArgs,
			RunE:  func(c *cobra.Command, _ []string) error { return q.AskPS(c.Context()) },
		},
		question("map", "Tell all VMs of the job, which come on standard input, to this node's", q, q.SendMap),
		question("key", "Let the holder of a key log in; the keys come on standard input", q, q.Key),
	)
	return c
}

func question(name, short string, q *task.Query, do func(context.Context, *nodeagent.Client) error) *cobra.Command {
	return &cobra.Command{
		Use:   name,
		Short: short,
		Args:  cobra.NoArgs,
		RunE:  func(c *cobra.Command, _ []string) error { return q.Ask(c.Context(), do) },
	}
}
