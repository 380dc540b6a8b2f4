// Command slurmv is for the users of VMs in Slurm jobs and for the administrators of nodes.
// It shows VMs, reaches into them, finds their logs, and says what a node lacks.
//
// It keeps no state and has no server. Slurm knows which jobs have VMs. Only a job's nodes
// know the rest, so slurmv asks them in a short step of that job (srun --overlap) whose
// tasks are slurmv-agent query.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	fabriccommands "github.com/slurm-v/slurm-v/fabric/commands"
	"github.com/slurm-v/slurm-v/internal/cli"
	"github.com/slurm-v/slurm-v/internal/jobvms"
	vfcommands "github.com/slurm-v/slurm-v/vfpool/commands"
	"github.com/slurm-v/slurm-v/vmstep"
)

func main() { os.Exit(run()) }

func run() int {
	if fabriccommands.NothingToReserve(os.Args, os.Getenv) {
		return 0
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := newRoot().ExecuteContext(ctx)
	if err != nil && err.Error() != "" {
		fmt.Fprintln(os.Stderr, "slurmv:", err)
	}
	return exitCode(err)
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:   "slurmv COMMAND",
		Short: "See and use the virtual machines of Slurm jobs",
		Long: `See and use the virtual machines of Slurm jobs.

A job has VMs if it was submitted with --vm-per-node and has started a program with
slurm-v-run(1). These commands work while the job runs, on the submit host and inside
the job. logs and report work after its end, too.

A VM is named JOB/VM, as in 4217/vm3 or 4217/3. Without /VM it is the job's first
VM. Inside a job you may leave out JOB.`,
		Version:           config.Version,
		SilenceUsage:      true,
		SilenceErrors:     true,
		DisableAutoGenTag: true,
	}
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return cli.Usagef("%v", err) })
	root.AddCommand(
		newPS(), newExec(), newSSH(), newConsole(), newForward(),
		newLogs(), newReport(),
		newCheck(), newProve(), newClean(), vfcommands.New(), fabriccommands.New(), newImage(),
		newLaunch(), newRun(), newReclaim(),
		newResources(), newLeftovers(), newLoseVM(), newGenDocs(),
	)
	for _, c := range append(root.Commands(), root) {
		c.DisableFlagsInUseLine = true // the use lines are complete
	}
	return root
}

// exitCode maps errors to exit statuses.
func exitCode(err error) int {
	var exit jobvms.ExitStatus
	var usage *vmstep.UsageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return int(exit)
	case errors.As(err, &usage), strings.HasPrefix(err.Error(), "unknown command"):
		return 2
	}
	return 1
}

// targetOf parses the words before "--" as a target. There is at most one word.
func targetOf(args []string, env func(string) string) (jobvms.Target, error) {
	if len(args) == 0 {
		return jobvms.ParseTarget("", env)
	}
	return jobvms.ParseTarget(args[0], env)
}
