package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/internal/check"
	"github.com/slurm-v/slurm-v/internal/cli"
	"github.com/slurm-v/slurm-v/internal/jobvms"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmstep"
)

type checkOptions struct {
	cli.Node
	output string
}

func newCheck() *cobra.Command {
	var o checkOptions
	c := &cobra.Command{
		Use:   "check [flags]",
		Short: "Say what this node lacks for VM jobs",
		Long: `Say what this node lacks for VM jobs, and what to do: libvirt, QEMU, KVM, IOMMU and
VFs, the kernel's networks, limits, directories, the plugin against Slurm's release,
Slurm's settings, and what jobs' tags on the fabric need. On a controller it finds out the
same of these tags.

Nothing is changed. As root it also opens libvirt, and makes a network in a namespace
of its own, because only a try shows whether these work.

With --output json it prints a list of objects with the keys name, status (ok,
warning, error or skipped), seen and advice.

EXIT STATUS
===========

    0   VM jobs can run here; there may be warnings
    1   something is missing
    2   the command line cannot be run`,
		Example: `  slurmv check
  srun -w n[1-40] slurmv check --output json`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.CheckOutput(o.output); err != nil {
				return err
			}
			return runCheck(c.Context(), o, c.OutOrStdout())
		},
	}
	o.Add(c)
	cli.AddOutput(c, &o.output)
	return c
}

func runCheck(ctx context.Context, o checkOptions, out io.Writer) error {
	node, err := slurm.NodeName(o.Name)
	if err != nil {
		return err
	}
	results := preflight(o.Config, node).Check(ctx)
	if o.output == "json" {
		err = cli.PrintJSON(out, results)
	} else {
		err = printResults(out, results)
	}
	if err == nil && check.Failed(results) {
		return jobvms.ExitStatus(1)
	}
	return err
}

func preflight(path, node string) check.Preflight {
	return check.Preflight{
		Root: "/", Name: node, Config: path, Agent: vmstep.AgentPath(), AsRoot: os.Geteuid() == 0, Run: slurm.User(os.Environ()).Run,
	}
}

func printResults(out io.Writer, results []check.Result) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, r := range results {
		fmt.Fprintf(t, "%s\t%s\t%s\n", r.Status, r.Name, r.Seen)
		if r.Advice != "" {
			fmt.Fprintf(t, "\t\t→ %s\n", r.Advice)
		}
	}
	return t.Flush()
}
