// Command slurmv is for the people who use VMs in Slurm jobs and for those who
// run the nodes: it shows VMs, reaches into them, finds their logs, and says what
// a node lacks.
//
// It keeps no state and has no server. Slurm says which jobs have VMs; what only a
// job's nodes know is asked by a short step of that job (srun --overlap), whose
// tasks are slurmv-agent query.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
)

func main() { os.Exit(run()) }

func run() int {
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
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usageError{err} })
	root.AddCommand(
		newPS(), newExec(), newSSH(), newConsole(), newForward(),
		newLogs(), newReport(),
		newCheck(), newClean(), newVF(), newImage(),
		newLaunch(), newRun(), newReclaim(),
		newResources(), newGenDocs(),
	)
	for _, c := range append(root.Commands(), root) {
		c.DisableFlagsInUseLine = true // the use lines are complete
	}
	return root
}

// A usageError is a command line that cannot be run.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// An exitError is the exit status of a program that slurmv ran for the user.
// There is nothing to add to what that program has said.
type exitError struct{ code int }

func (e exitError) Error() string { return "" }

// exitCode maps errors to exit statuses.
func exitCode(err error) int {
	var exit exitError
	var usage usageError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &exit):
		return exit.code
	case errors.As(err, &usage), strings.HasPrefix(err.Error(), "unknown command"):
		return 2
	}
	return 1
}

// agentPath is where every node has the agent.
func agentPath() string { return filepath.Join(config.Libexec, "slurmv-agent") }

// atMost and atLeast are cobra's, with errors that are usage errors.
func atMost(n int) cobra.PositionalArgs { return usageArgs(cobra.MaximumNArgs(n)) }

func atLeast(n int) cobra.PositionalArgs { return usageArgs(cobra.MinimumNArgs(n)) }

func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(c *cobra.Command, args []string) error {
		if err := check(c, args); err != nil {
			return usageError{err}
		}
		return nil
	}
}
