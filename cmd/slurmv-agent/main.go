// Command slurmv-agent is Slurm-V on a node. The plugin starts it as root for a job
// (launch, reclaim), the job's own tasks run it (hold, claim), and so does an
// administrator (clean).
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	err := newRoot().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "slurmv-agent:", err)
		os.Exit(1)
	}
}

func newRoot() *cobra.Command {
	root := &cobra.Command{
		Use:           "slurmv-agent",
		Short:         "The node agent of Slurm-V",
		Long:          "The node agent of Slurm-V. Slurm's plugin starts it; users call slurmv.",
		Version:       config.Version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(newLaunch(), hardened(newReclaim()), newClean(), newSaveLogs(), newHold(), newClaim(), newQuery(), newProbe(), newRequeue(), newEmpty(), newWarm(), newFabric())
	return root
}
