package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/internal/jobvms"
	"github.com/slurm-v/slurm-v/vmstep"
)

// Main runs the command line of this process, prints the error, and returns the exit status.
func Main(root *cobra.Command) int {
	root.SilenceUsage, root.SilenceErrors, root.DisableAutoGenTag = true, true, true
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return Usagef("%v", err) })
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	err := root.ExecuteContext(ctx)
	if err != nil && err.Error() != "" {
		fmt.Fprintln(os.Stderr, "slurmv:", err)
	}
	return exitCode(err)
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
