package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/nodeagent"
)

// stagesFile is what the agent leaves beside the logs of a node: its
// nodeagent.NodeVMs.
const stagesFile = "stages.json"

func newReport() *cobra.Command {
	var output string
	c := &cobra.Command{
		Use:   "report [flags] JOB",
		Short: "Show how long the VMs of a job took to start, stage by stage",
		Long: `Show how long each stage of the launch took, for every VM of a job.

While the VMs run, their agents are asked; afterwards the record beside the logs
is read (see slurmv logs). The last column is the sum of the stages.

EXIT STATUS
===========

    0   the times are shown
    1   there is no record
    2   the command line cannot be run`,
		Example: `  slurmv report 4217
  slurmv report --output json 4217`,
		Args: atMost(1),
		RunE: func(c *cobra.Command, args []string) error {
			t, err := targetOf(args, os.Getenv)
			if err == nil {
				err = checkOutput(output)
			}
			if err != nil {
				return err
			}
			return runReport(c.Context(), t.job, output, c.OutOrStdout())
		},
	}
	addOutput(c, &output)
	return c
}

func runReport(ctx context.Context, job, output string, out io.Writer) error {
	saved, err := findSaved(ctx, job)
	if err != nil {
		return err
	}
	nodes, err := saved.stages()
	if err == nil && len(nodes) == 0 {
		nodes, err = runningStages(ctx, job, saved)
	}
	if err != nil {
		return err
	}
	if output == "json" {
		return printJSON(out, nodes)
	}
	return printStages(out, nodes)
}

// stages reads what the nodes have left.
func (s savedLogs) stages() ([]nodeagent.NodeVMs, error) {
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
	return nodes, nil
}

func runningStages(ctx context.Context, name string, saved savedLogs) ([]nodeagent.NodeVMs, error) {
	job, err := findJob(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("%w; no record is in %s", err, saved.dirs[0])
	}
	return askVMs(ctx, job)
}

// printStages prints a line per VM and a column per stage, in the order in which
// the stages come.
func printStages(out io.Writer, nodes []nodeagent.NodeVMs) error {
	columns := stageNames(nodes)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "VM\tNODE\t%s\tTOTAL\n", strings.ToUpper(strings.Join(columns, "\t")))
	for _, n := range nodes {
		for _, vm := range n.VMs {
			fmt.Fprintf(t, "%s\t%s", vm.Name, n.Node)
			for _, name := range columns {
				fmt.Fprintf(t, "\t%s", stageTime(vm.Stages, name))
			}
			fmt.Fprintf(t, "\t%s\n", seconds(total(vm.Stages)))
		}
	}
	return t.Flush()
}

func stageNames(nodes []nodeagent.NodeVMs) []string {
	var names []string
	for _, n := range nodes {
		for _, vm := range n.VMs {
			for _, s := range vm.Stages {
				if !slices.Contains(names, s.Name) {
					names = append(names, s.Name)
				}
			}
		}
	}
	return names
}

func stageTime(stages []nodeagent.Stage, name string) string {
	for _, s := range stages {
		if s.Name == name {
			return seconds(s.Millis)
		}
	}
	return "-"
}
