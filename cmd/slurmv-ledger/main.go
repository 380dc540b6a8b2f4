// Command slurmv-ledger does those commands of slurmv fabric that work on the fabric's ledger or
// its managers. slurmv becomes it with the same command line: HTTP, TLS and the database are only
// needed on controllers, and would make slurmv larger by half.
package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric/commands"
	"github.com/slurm-v/slurm-v/fabric/commands/oncontroller"
	"github.com/slurm-v/slurm-v/internal/cli"
)

func main() {
	root := &cobra.Command{Use: "slurmv COMMAND", Short: "Manage jobs' tags on the fabric", Version: config.Version}
	root.AddCommand(commands.New(oncontroller.Commands{}))
	os.Exit(cli.Main(root))
}
