package main

import (
	"os"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/internal/cli"
	"github.com/slurm-v/slurm-v/internal/sshlogin"
)

func newSSH() *cobra.Command {
	return &cobra.Command{
		Use:   "ssh [JOB][/VM] [-- COMMAND [ARGUMENT...]]",
		Short: "Log in to a VM with ssh",
		Long: `Log in to a VM of a running job with ssh, as the job's owner.

The connection goes through Slurm and the VM's own channel, so it needs no network
between this host and the VM. It uses the guest's own sshd, with keys that are made
for this login and forgotten after it. If the image has no sshd, use slurmv exec -t.

EXIT STATUS
===========

    ssh's own: the command's, 255 if the connection failed
    1   also: the VM or its node does not answer, or the image has no sshd
    2   also: the command line cannot be run`,
		Example: `  slurmv ssh 4217
  slurmv ssh 4217/vm3 -- dmesg`,
		RunE: func(c *cobra.Command, args []string) error {
			before := c.ArgsLenAtDash()
			if before < 0 {
				before = len(args)
			}
			if before > 1 {
				return cli.Usagef("write -- between the VM and the command, as in slurmv ssh 4217/vm0 -- dmesg")
			}
			t, err := targetOf(args[:before], os.Getenv)
			if err != nil {
				return err
			}
			return sshlogin.Run(c.Context(), t, args[before:])
		},
	}
}
