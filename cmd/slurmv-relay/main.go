// Command slurmv-relay is a Slurm task that stands for a program in a VM of its node. Each rank
// has one, so it is small: slurmv-agent loads libvirt before it does anything.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/internal/pmi"
	"github.com/slurm-v/slurm-v/vmstep"
	"github.com/slurm-v/slurm-v/vmstep/task"
)

func main() {
	if err := newRelay().Execute(); err != nil {
		fmt.Fprintln(os.Stderr, "slurmv-relay:", err)
		os.Exit(1)
	}
}

func newRelay() *cobra.Command {
	var exec task.Exec
	cmd := &cobra.Command{
		Use:   "slurmv-relay [flags] -- program [arguments]",
		Short: "Be a task whose program runs in a VM of this node",
		Long: `Be a task whose program runs in a VM of this node.

slurm-v-run and slurmv exec start it through srun. Standard streams, signals and
PMI go to and from the program; its exit code or signal becomes the task's.`,
		Version:       config.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
		Args:          cobra.MinimumNArgs(1),
		Run: func(_ *cobra.Command, program []string) {
			task.End(exec.Run(program))
		},
	}
	flags := cmd.Flags()
	flags.SetInterspersed(false)
	flags.StringVar(&exec.Config, "config", config.Path, "read the configuration from this `file`")
	flags.StringVar(&exec.Distribution, "vm-distribution", string(pmi.DistBlock), "spread the tasks over VMs by `block|cyclic`")
	flags.IntVar(&exec.VM, "vm", nodeagent.ByDistribution, "use the VM with this `number` in the job, wherever the task belongs")
	flags.BoolVar(&exec.Terminal, "terminal", false, "give the program a terminal")
	flags.BoolVar(&exec.Mpirun, "mpirun", false, "give the program the environment of an mpirun that starts its tasks by ssh")
	flags.BoolVar(&exec.PMIx, "pmix", false, "start the program with a PMIx server")
	flags.StringVar(&exec.Claim, "claim", "", "run the program under this `claim` on an IVShmem device")
	flags.StringVar(&exec.MPIShared, "mpi-shm", vmstep.MPISharedOff, "give the program's MPI the memory of the claimed device: `auto|on|off`")
	flags.BoolVar(&exec.Quiet, "quiet", false, "do not say what MPI does with this memory, unless the run fails for it")
	flags.BoolVar(&exec.SparesRanks, "spare-ranks", false, "let the other ranks live when this one is gone")
	flags.DurationVar(&exec.Wait, "wait", 5*time.Second, "wait this `long` for VMs that are still coming up")
	return cmd
}
