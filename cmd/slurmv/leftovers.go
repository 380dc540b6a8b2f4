package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/cli"
	"github.com/slurm-v/slurm-v/internal/leftovers"
)

// newLeftovers is a command for slurmv prove, which runs it on nodes.
func newLeftovers() *cobra.Command {
	var o cli.Node
	var wait time.Duration
	c := &cobra.Command{
		Use:    "leftovers [flags] JOB...",
		Short:  "Print what jobs have on this node",
		Hidden: true,
		Long: `Print what jobs have on this node, a thing a line: processes, network devices, files,
mounts and cgroups. After a job's end there must be nothing. The last line is "looked".

EXIT STATUS
===========

    0   the things are printed; there may be none
    1   the configuration cannot be read
    2   the command line cannot be run`,
		Args: cli.AtLeastOne(),
		RunE: func(c *cobra.Command, args []string) error {
			jobs, err := cli.JobNumbers(args)
			if err != nil {
				return err
			}
			return runLeftovers(c.Context(), o, wait, jobs, c.OutOrStdout())
		},
	}
	o.Add(c)
	c.Flags().DurationVar(&wait, "wait", 0, "wait at most this `long` until nothing is left")
	return c
}

func runLeftovers(ctx context.Context, o cli.Node, wait time.Duration, jobs []uint32, out io.Writer) error {
	name, cfg, err := o.Load()
	if err != nil {
		return err
	}
	found, err := leftovers.This(cfg, name).Await(ctx, jobs, wait)
	for _, thing := range found {
		fmt.Fprintln(out, thing)
	}
	if err == nil {
		_, err = fmt.Fprintln(out, "looked")
	}
	return err
}

// newLoseVM is a command for slurmv prove, whose job runs it on its first node.
func newLoseVM() *cobra.Command {
	return &cobra.Command{
		Use:    "lose-vm JOB",
		Short:  "Kill the QEMU of one of my job's VMs on this node",
		Hidden: true,
		Args:   cli.Args(cobra.ExactArgs(1)),
		RunE: func(_ *cobra.Command, args []string) error {
			jobs, err := cli.JobNumbers(args)
			if err != nil {
				return err
			}
			return leftovers.This(config.Default(), "").KillVM(jobs[0])
		},
	}
}
