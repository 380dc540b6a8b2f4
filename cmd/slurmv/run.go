package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/cli"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmstep"
	"github.com/slurm-v/slurm-v/vmstep/noplugin"
)

type runOptions struct {
	config       string
	wait         time.Duration
	distribution string
}

func newRun() *cobra.Command {
	var o runOptions
	c := &cobra.Command{
		Use:   "run [flags] -- PROGRAM [ARGUMENT...]",
		Short: "Run a program in a VM of this node, on a cluster without the plugin",
		Long: `Run a program in a VM of this node, on a cluster without the plugin. srun starts
this command once for each task. With --mpi=pmi2 MPI programs find each other.
Standard streams, signals and the exit status are the program's.

It waits while slurmv launch starts the VMs. If launch fails, the step's first task
ends; give srun --kill-on-bad-exit=1, so that the other tasks end, too. See slurmv
launch.

EXIT STATUS
===========

    the program's own
    1   also: there are no VMs on this node
    2   also: the command line cannot be run`,
		Example: `  srun --overlap --mpi=pmi2 --kill-on-bad-exit=1 --ntasks=8 slurmv run -- ./graph500`,
		Args:    cli.AtLeastOne(),
		RunE:    func(c *cobra.Command, program []string) error { return runRun(c.Context(), o, program) },
	}
	f := c.Flags()
	f.SetInterspersed(false)
	f.StringVar(&o.config, "config", config.Path, "read the configuration from `file`")
	f.DurationVar(&o.wait, "wait", 10*time.Minute, "wait at most this `long` for the VMs")
	f.StringVar(&o.distribution, "vm-distribution", "block", "spread the tasks of a node over its VMs: `block|cyclic`")
	return c
}

// runRun becomes the relay, which inherits the task's PMI descriptor and signals.
func runRun(ctx context.Context, o runOptions, program []string) error {
	switch os.Getenv(slurm.EnvProcID) {
	case "":
		return errors.New("slurmv run is the task of a step: srun --overlap --mpi=pmi2 ... slurmv run -- program")
	case "0":
		if err := noplugin.AwaitLaunch(ctx, o.config, o.wait); err != nil {
			return err
		}
	}
	args := []string{"slurmv-relay", "--config=" + o.config, "--vm-distribution=" + o.distribution, "--wait=" + o.wait.String(), "--"}
	err := syscall.Exec(vmstep.RelayPath(), append(args, program...), os.Environ())
	return fmt.Errorf("run %s: %w", vmstep.RelayPath(), err)
}
