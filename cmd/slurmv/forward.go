package main

import (
	"context"
	"io"
	"os"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/internal/cli"
	"github.com/slurm-v/slurm-v/internal/jobvms"
	"github.com/slurm-v/slurm-v/vmstep"
)

// newForward is the command that slurmv ssh, or a user's ssh, runs as ProxyCommand.
func newForward() *cobra.Command {
	var node string
	c := &cobra.Command{
		Use:   "forward JOB[/VM] PORT",
		Short: "Connect standard input and output to a port of a VM",
		Long: `Connect standard input and output to a TCP port of a VM, on its loopback.

The connection goes through Slurm and the VM's own channel: it needs no network
between this host and the VM.

EXIT STATUS
===========

    0   the connection has ended
    1   the VM does not answer, or nothing listens on the port
    2   the command line cannot be run`,
		Example: `  echo GET / | slurmv forward 4217/vm0 8080
  ssh -o ProxyCommand='slurmv forward 4217/vm0 22' vm0`,
		Args: cli.Args(cobra.ExactArgs(2)),
		RunE: func(c *cobra.Command, args []string) error {
			t, err := jobvms.ParseTarget(args[0], os.Getenv)
			if err != nil {
				return err
			}
			port, err := strconv.ParseUint(args[1], 10, 16)
			if err != nil || port == 0 {
				return cli.Usagef("%q is not a port; use 1 to 65535", args[1])
			}
			return runForward(c.Context(), t, node, uint16(port), os.Stdin, c.OutOrStdout())
		},
	}
	c.Flags().StringVar(&node, "node", "", "the `node` that the VM is on, if known: saves a question")
	_ = c.Flags().MarkHidden("node")
	return c
}

func runForward(ctx context.Context, t jobvms.Target, node string, port uint16, in io.Reader, out io.Writer) error {
	job, err := jobvms.Find(ctx, t.Job)
	if err != nil {
		return err
	}
	if node == "" {
		if job, node, err = jobvms.FindVM(ctx, t); err != nil {
			return err
		}
	}
	query := vmstep.AgentQuery("forward", "--vm="+strconv.Itoa(t.VM), "--port="+strconv.Itoa(int(port)))
	return jobvms.Step{Job: job, Node: node, Command: query, Stdin: in}.Run(ctx, jobvms.StreamTo(out))
}
