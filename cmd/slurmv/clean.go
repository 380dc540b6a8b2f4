package main

import (
	"context"
	"errors"
	"io"
	"os"
	"os/exec"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/internal/cli"
	"github.com/slurm-v/slurm-v/vmstep"
)

func newClean() *cobra.Command {
	var o cli.Node
	c := &cobra.Command{
		Use:   "clean [flags]",
		Short: "Reclaim what ended jobs left on this node",
		Long: `Reclaim what ended jobs left on this node, for example after a power cut: VMs,
networks and files.

It asks Slurm which jobs run here and gives back what all other jobs hold. It does
not touch running jobs. It may run at any time, as root on the node: as
HealthCheckProgram, when the node boots, or by hand.

Where OpenStack makes the VMs, it then removes what ended jobs of all nodes left
there, for 40 seconds at most. What it cannot remove there is a warning. If slurmd
starts it, it draws lots for this with the other nodes.

If slurmd starts it, it ends after 55 seconds, since slurmd kills health checks after a
minute. It says which jobs it has not reached, and leaves them to the next one.

EXIT STATUS
===========

    0   nothing is left of ended jobs on this node
    1   something is left, or Slurm did not say what runs
    2   the command line cannot be run`,
		Example: `  slurmv clean
  slurmv clean --node-name n1`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return runClean(c.Context(), o, os.Geteuid(), c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	o.Add(c)
	return c
}

func runClean(ctx context.Context, o cli.Node, uid int, out, words io.Writer) error {
	if uid != 0 {
		return errors.New("slurmv clean gives back what belongs to jobs of all users: run it as root on the node")
	}
	c := exec.CommandContext(ctx, vmstep.AgentPath(), o.AgentArgs("clean")...)
	c.Stdout, c.Stderr = out, words
	return cli.Run(c)
}
