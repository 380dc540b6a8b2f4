package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/vmlaunch"
)

// newSaveLogs is the command with which a reclaim writes logs with the rights of the job's
// owner.
func newSaveLogs() *cobra.Command {
	return &cobra.Command{
		Use:    "save-logs DIR SUBDIRECTORY",
		Short:  "Write the logs that come as a tar stream on standard input",
		Hidden: true,
		Args:   cobra.ExactArgs(2),
		RunE:   func(_ *cobra.Command, args []string) error { return vmlaunch.ExtractLogs(args[0], args[1], os.Stdin) },
	}
}
