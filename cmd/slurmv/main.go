// Command slurmv is for the users of VMs in Slurm jobs and for the administrators of nodes.
// It shows VMs, reaches into them, finds their logs, and says what a node lacks.
//
// It keeps no state and has no server. Slurm knows which jobs have VMs. Only a job's nodes
// know the rest, so slurmv asks them in a short step of that job (srun --overlap) whose
// tasks are slurmv-agent query.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	fabriccommands "github.com/slurm-v/slurm-v/fabric/commands"
	"github.com/slurm-v/slurm-v/internal/cli"
	"github.com/slurm-v/slurm-v/internal/jobvms"
	vfcommands "github.com/slurm-v/slurm-v/vfpool/commands"
)

func main() {
	if fabriccommands.NothingToReserve(os.Args, os.Getenv) {
		return
	}
	os.Exit(cli.Main(newRoot(fabriccommands.Ledger{})))
}

func newRoot(controller fabriccommands.Controller) *cobra.Command {
	root := &cobra.Command{
		Use:   "slurmv COMMAND",
		Short: "See and use the virtual machines of Slurm jobs",
		Long: `See and use the virtual machines of Slurm jobs.

A job has VMs if it was submitted with --vm-per-node and has started a program with
slurm-v-run(1). These commands work while the job runs, on the submit host and inside
the job. logs and report work after its end, too.

A VM is named JOB/VM, as in 4217/vm3 or 4217/3. Without /VM it is the job's first
VM. Inside a job you may leave out JOB.`,
		Version: config.Version,
	}
	root.AddCommand(
		newPS(), newExec(), newSSH(), newConsole(), newForward(),
		newLogs(), newReport(),
		newCheck(), newProve(), newClean(), vfcommands.New(), fabriccommands.New(controller), newImage(),
		newLaunch(), newRun(), newReclaim(),
		newResources(), newLeftovers(), newLoseVM(), newGenDocs(),
	)
	for _, c := range append(root.Commands(), root) {
		c.DisableFlagsInUseLine = true // the use lines are complete
	}
	return root
}

// targetOf parses the words before "--" as a target. There is at most one word.
func targetOf(args []string, env func(string) string) (jobvms.Target, error) {
	if len(args) == 0 {
		return jobvms.ParseTarget("", env)
	}
	return jobvms.ParseTarget(args[0], env)
}
