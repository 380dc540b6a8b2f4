package main

import (
	"context"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/cli"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/vmstep/noplugin"
)

func newLaunch() *cobra.Command {
	var path string
	values := map[string]*string{}
	c := &cobra.Command{
		Use:   "launch --vm-per-node=N [VM options]",
		Short: "Start the VMs of this job, on a cluster without the plugin",
		Long: `Start the VMs of this job on this node and hold them, on a cluster without the
plugin. There a batch script has three steps of its own: launch, run and reclaim.
Launch is one task on every node of the job, in the background. It ends with
reclaim, or with the job. The script asks for the CPUs and memory of the VMs itself;
slurmv resources says how many.

Call the step of launch slurm-v: the other commands find its VMs by this name. The
options are those of sbatch with the plugin.

` + noplugin.Setup() + `

EXIT STATUS
===========

    0   the VMs were held until reclaim, or until the job's end
    1   they could not be started or have ended; all of them were reclaimed
    2   the command line cannot be run`,
		Example: `  #SBATCH --nodes=2 --mincpus=4 --mem=5G
  vms="srun --overlap --nodes=2 --ntasks-per-node=1 --mem=0 --cpu-bind=none"
  $vms --job-name=slurm-v --kill-on-bad-exit=1 \
      slurmv launch --vm-per-node=2 --vcpu-per-vm=2 --memory-per-vm=2G --vm-image=/images/mpi.qcow2 &
  srun --overlap --mpi=pmi2 --kill-on-bad-exit=1 --ntasks=8 slurmv run -- ./graph500
  $vms slurmv reclaim`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return runLaunch(c.Context(), path, given(c, values), c.ErrOrStderr())
		},
	}
	for _, o := range jobspec.Options {
		if o.Name != jobspec.FabricOption { // no controller would hear of a wish for tags
			values[o.Name] = c.Flags().String(o.Name, "", strings.TrimPrefix(o.Usage, "[slurm-v] "))
		}
	}
	c.Flags().StringVar(&path, "config", config.Path, "read the configuration from `file`; the node reads its own")
	return c
}

func runLaunch(ctx context.Context, path string, values map[string]string, words io.Writer) error {
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	spec, err := jobspec.Parse(values, os.Getenv, cfg)
	if err != nil {
		return err
	}
	return noplugin.Launch(ctx, cfg, spec, words)
}

func newReclaim() *cobra.Command {
	return &cobra.Command{
		Use:   "reclaim",
		Short: "End the VMs that slurmv launch has started on this node",
		Long: `End the VMs that slurmv launch has started for this job on this node, and give
back everything that they hold. It may run any number of times. See slurmv launch.

EXIT STATUS
===========

    0   nothing of the job is left on this node
    1   something is left, or sudo does not run the agent
    2   the command line cannot be run`,
		Example: "  srun --overlap --ntasks-per-node=1 slurmv reclaim",
		Args:    cli.Args(cobra.NoArgs),
		RunE:    func(*cobra.Command, []string) error { return noplugin.Reclaim() },
	}
}
