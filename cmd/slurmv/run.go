package main

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

func newRun() *cobra.Command {
	var wait time.Duration
	var distribution string
	c := &cobra.Command{
		Use:   "run [flags] -- PROGRAM [ARGUMENT...]",
		Short: "Be a task whose program runs in a VM, on a cluster without the plugin",
		Long: `Be a task of a step whose program runs in a VM of the task's node, on a cluster
that does not have the plugin. srun starts it, once for each task; with --mpi=pmi2
MPI programs find each other. Standard streams, signals and the exit status are
the program's.

It waits for VMs that slurmv launch is still starting. See slurmv launch.

EXIT STATUS
===========

    the program's own
    1   also: there are no VMs on this node
    2   also: the command line cannot be run`,
		Example: `  srun --overlap --mpi=pmi2 --ntasks=8 slurmv run -- ./graph500`,
		Args:    atLeast(1),
		RunE: func(c *cobra.Command, program []string) error {
			if os.Getenv("SLURM_PROCID") == "" {
				return errors.New("slurmv run is the task of a step: srun --overlap --mpi=pmi2 ... slurmv run -- program")
			}
			args := []string{"slurmv-agent", "exec", "--vm-distribution=" + distribution, "--wait=" + wait.String(), "--"}
			// The task becomes the relay, with its PMI descriptor and its signals.
			err := syscall.Exec(agentPath(), append(args, program...), os.Environ())
			return fmt.Errorf("run %s: %w", agentPath(), err)
		},
	}
	c.Flags().SetInterspersed(false)
	c.Flags().DurationVar(&wait, "wait", 10*time.Minute, "wait at most this `long` for the VMs")
	c.Flags().StringVar(&distribution, "vm-distribution", "block", "spread the tasks of a node over its VMs: `block|cyclic`")
	return c
}
