package main

import (
	"time"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/vmstep/task"
)

func newClaim() *cobra.Command {
	var claim task.Claimant
	cmd := &cobra.Command{
		Use:   "claim",
		Short: "Hold an IVShmem device of the job for a slurm-v-run",
		Long: `Hold an IVShmem device of the job for a slurm-v-run, on the job's first node.

slurm-v-run starts it through srun. It says on standard output when it has a device,
and holds the device until the end of standard input, which is the end of slurm-v-run.
No signal ends it, because signals to the job are for its programs.`,
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE:   func(*cobra.Command, []string) error { return claim.Run() },
	}
	flags := cmd.Flags()
	flags.StringVar(&claim.Config, "config", config.Path, "read the configuration from this `file`")
	flags.BoolVar(&claim.NoWait, "no-wait", false, "do not wait for a device if all are claimed")
	flags.DurationVar(&claim.Wait, "wait", 5*time.Second, "wait this `long` for VMs that are still coming up")
	return cmd
}
