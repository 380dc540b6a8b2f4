package main

import (
	"context"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/slurm-v/slurm-v/internal/cli"
	"github.com/slurm-v/slurm-v/internal/jobvms"
)

func newExec() *cobra.Command {
	var terminal bool
	c := &cobra.Command{
		Use:   "exec [-t] [JOB][/VM] -- COMMAND [ARGUMENT...]",
		Short: "Run a command in a VM",
		Long: `Run a command in a VM of a running job, as the job's owner.

Standard input, output and error are connected to the command, and its exit status
is slurmv's. The working directory is this one, if the VM has it. The command ends
when slurmv or the job ends.

EXIT STATUS
===========

    the command's own; 128 + N if signal N killed it
    1   also: the VM or its node does not answer, or the job has none
    2   also: the command line cannot be run`,
		Example: `  slurmv exec 4217 -- uname -a
  slurmv exec 4217/vm3 -- tail -f /var/log/messages
  slurmv exec -t 4217/vm1 -- bash`,
		Args: cli.AtLeastOne(),
		RunE: func(c *cobra.Command, args []string) error {
			before := c.ArgsLenAtDash()
			if before < 0 || before > 1 || before == len(args) {
				return cli.Usagef("write -- between the VM and the command, as in slurmv exec 4217/vm0 -- uname -a")
			}
			t, err := targetOf(args[:before], os.Getenv)
			if err != nil {
				return err
			}
			return runExec(c.Context(), t, terminal, args[before:], c.ErrOrStderr())
		},
	}
	c.Flags().BoolVarP(&terminal, "terminal", "t", false, "give the command a terminal: for shells and editors")
	return c
}

func runExec(ctx context.Context, t jobvms.Target, terminal bool, command []string, words io.Writer) error {
	if terminal && !term.IsTerminal(int(os.Stdin.Fd())) {
		return cli.Usagef("-t: standard input is not a terminal; leave out -t")
	}
	job, node, err := jobvms.FindVM(ctx, t)
	if err != nil {
		return err
	}
	return jobvms.Exec{Job: job, Node: node, VM: t.VM, Terminal: terminal}.Run(ctx, command, words)
}
