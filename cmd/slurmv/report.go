package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/internal/cli"
	"github.com/slurm-v/slurm-v/internal/joblogs"
	"github.com/slurm-v/slurm-v/internal/jobvms"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/internal/report"
)

type reportOptions struct {
	job       string
	long      bool
	output    string
	svg, html string // files
}

func newReport() *cobra.Command {
	var o reportOptions
	c := &cobra.Command{
		Use:   "report [flags] JOB",
		Short: "Show how long the VMs of a job took to start, stage by stage",
		Long: `Show how long each stage of the launch took: the least, the median and the greatest
time of all VMs of a job. A stage that the VMs of a node share counts for each of them.
The last line is the time from the request until a VM is ready. It is less than the sum
of the stages, because several stages run at the same time.

While the VMs run, slurmv asks their agents. Afterwards it reads the record beside the
logs (see slurmv logs). A picture has a bar for every stage of every node and VM.

With --output json it prints a list of objects, one per node: node, accel (kvm, or tcg,
which emulates), began (when the launch began there), stages (those that its VMs share)
and vms, each with its own stages. A stage has name, start_ns and end_ns, in nanoseconds
of the node's monotonic clock since it began.

EXIT STATUS
===========

    0   the times are shown
    1   there is no record, or a file cannot be written
    2   the command line cannot be run`,
		Example: `  slurmv report 4217
  slurmv report --html launch.html 4217
  slurmv report --output json 4217`,
		Args: cli.AtMostOne(),
		RunE: func(c *cobra.Command, args []string) error {
			t, err := targetOf(args, os.Getenv)
			if err == nil {
				err = cli.CheckOutput(o.output)
			}
			if err != nil {
				return err
			}
			o.job = t.Job
			return runReport(c.Context(), o, c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.BoolVarP(&o.long, "long", "l", false, "show also a line per VM")
	f.StringVar(&o.svg, "svg", "", "draw the launch into this `file`")
	f.StringVar(&o.html, "html", "", "write picture and tables into this `file`, as one page without other files")
	cli.AddOutput(c, &o.output)
	return c
}

func runReport(ctx context.Context, o reportOptions, out io.Writer) error {
	nodes, err := findStages(ctx, o.job)
	if err != nil {
		return err
	}
	if err := o.draw(nodes); err != nil {
		return err
	}
	if o.output == "json" {
		return cli.PrintJSON(out, nodes)
	}
	if err := report.WriteTable(out, nodes); err != nil || !o.long {
		return err
	}
	fmt.Fprintln(out)
	return report.WriteVMs(out, nodes)
}

// draw writes the files that the user asked for.
func (o reportOptions) draw(nodes []nodeagent.NodeVMs) error {
	return errors.Join(
		writeFile(o.svg, func(w io.Writer) error { return report.WriteSVG(w, nodes) }),
		writeFile(o.html, func(w io.Writer) error { return report.WriteHTML(w, o.job, nodes) }))
}

// writeFile does nothing without a path.
func writeFile(path string, write func(io.Writer) error) error {
	if path == "" {
		return nil
	}
	var text bytes.Buffer
	if err := write(&text); err != nil {
		return err
	}
	return os.WriteFile(path, text.Bytes(), 0o644)
}

func findStages(ctx context.Context, job string) ([]nodeagent.NodeVMs, error) {
	saved, err := joblogs.Find(ctx, job)
	if err != nil {
		return nil, err
	}
	nodes, err := saved.Stages()
	if err == nil && len(nodes) == 0 {
		nodes, err = runningStages(ctx, job, saved)
	}
	return nodes, err
}

func runningStages(ctx context.Context, name string, saved joblogs.Saved) ([]nodeagent.NodeVMs, error) {
	job, err := jobvms.Find(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("%w; no record is in %s", err, saved.Dirs[0])
	}
	return jobvms.Ask(ctx, job)
}
