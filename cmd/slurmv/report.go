package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/internal/report"
)

// stagesFile is what the agent leaves beside the logs of a node: its
// nodeagent.NodeVMs.
const stagesFile = "stages.json"

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

With --output json it prints a list of objects, one per node: node, began (when the
launch began there), stages (those that its VMs share) and vms, each with its own
stages. A stage has name, start_ns and end_ns, in nanoseconds of the node's
monotonic clock since it began.

EXIT STATUS
===========

    0   the times are shown
    1   there is no record, or a file cannot be written
    2   the command line cannot be run`,
		Example: `  slurmv report 4217
  slurmv report --html launch.html 4217
  slurmv report --output json 4217`,
		Args: atMost(1),
		RunE: func(c *cobra.Command, args []string) error {
			t, err := targetOf(args, os.Getenv)
			if err == nil {
				err = checkOutput(o.output)
			}
			if err != nil {
				return err
			}
			o.job = t.job
			return runReport(c.Context(), o, c.OutOrStdout())
		},
	}
	f := c.Flags()
	f.BoolVarP(&o.long, "long", "l", false, "show also a line per VM")
	f.StringVar(&o.svg, "svg", "", "draw the launch into this `file`")
	f.StringVar(&o.html, "html", "", "write picture and tables into this `file`, as one page without other files")
	addOutput(c, &o.output)
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
		return printJSON(out, nodes)
	}
	if err := report.WriteTable(out, nodes); err != nil || !o.long {
		return err
	}
	fmt.Fprintln(out)
	return report.WriteVMs(out, nodes)
}

// draw makes the files that are asked for.
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
	saved, err := findSaved(ctx, job)
	if err != nil {
		return nil, err
	}
	nodes, err := saved.stages()
	if err == nil && len(nodes) == 0 {
		nodes, err = runningStages(ctx, job, saved)
	}
	return nodes, err
}

// stages reads what the nodes have left of the job's newest run.
func (s savedLogs) stages() (newest []nodeagent.NodeVMs, err error) {
	var began time.Time
	for _, dir := range s.dirs {
		nodes, err := savedLogs{[]string{dir}}.stagesOfRun()
		if err != nil {
			return nil, err
		}
		if len(nodes) > 0 && (newest == nil || nodes[0].Began.After(began)) {
			newest, began = nodes, nodes[0].Began
		}
	}
	return newest, nil
}

func (s savedLogs) stagesOfRun() ([]nodeagent.NodeVMs, error) {
	var nodes []nodeagent.NodeVMs
	for _, file := range s.files() {
		if file.name != stagesFile {
			continue
		}
		text, err := os.ReadFile(file.path)
		if err != nil {
			return nil, err
		}
		var n nodeagent.NodeVMs
		if err := json.Unmarshal(text, &n); err != nil {
			return nil, fmt.Errorf("%s is not a record of stages: %w", file.path, err)
		}
		nodes = append(nodes, n)
	}
	slices.SortFunc(nodes, func(a, b nodeagent.NodeVMs) int { return a.Rank - b.Rank })
	return nodes, nil
}

func runningStages(ctx context.Context, name string, saved savedLogs) ([]nodeagent.NodeVMs, error) {
	job, err := findJob(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("%w; no record is in %s", err, saved.dirs[0])
	}
	return askVMs(ctx, job)
}
