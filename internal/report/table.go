package report

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

// String returns the launch in one sentence.
func (s Summary) String() string {
	return fmt.Sprintf("%s on %s, ready after %s", Count(s.VMs, "VM"), Count(s.Nodes, "node"), seconds(s.Ready))
}

// Count is a number with its noun: 1 VM, 2 VMs.
func Count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }

// WriteTable prints a line per stage.
func WriteTable(out io.Writer, nodes []nodeagent.NodeVMs) error {
	fmt.Fprintf(out, "%s\n\n", Summarize(nodes))
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "STAGE\tMIN\tMEDIAN\tMAX\tWHAT")
	for _, r := range Rows(nodes) {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", r.Stage, seconds(r.Min), seconds(r.Median), seconds(r.Max), r.Meaning)
	}
	return errors.Join(t.Flush(), writeImages(out, nodes))
}

// writeImages prints how the image got to each node.
func writeImages(out io.Writer, nodes []nodeagent.NodeVMs) error {
	var all error
	for _, n := range nodes {
		if n.Image != nil {
			_, err := fmt.Fprintf(out, "\nimage on %s: %s\n", n.Node, n.Image.Note)
			all = errors.Join(all, err)
		}
	}
	return all
}

// WriteVMs prints a line per VM, with its own stages and those that it shares.
func WriteVMs(out io.Writer, nodes []nodeagent.NodeVMs) error {
	rows := Rows(nodes)
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "VM\tNODE")
	for _, r := range rows {
		fmt.Fprintf(t, "\t%s", strings.ToUpper(r.Stage))
	}
	fmt.Fprintln(t)
	for _, n := range nodes {
		for _, vm := range n.VMs {
			fmt.Fprintf(t, "%s\t%s\t%s\n", vm.Name, n.Node, strings.Join(times(n, vm, rows), "\t"))
		}
	}
	return t.Flush()
}

// times returns the VM's time in each stage, "-" if it did not have the stage.
func times(n nodeagent.NodeVMs, vm nodeagent.VM, rows []Row) []string {
	took := map[string]string{}
	for _, s := range stagesOf(n, vm) {
		took[s.Name] = seconds(s.End - s.Start)
	}
	if total, up := untilReady(n, vm); up {
		took[ready] = seconds(total)
	}
	texts := make([]string, len(rows))
	for i, r := range rows {
		if texts[i] = took[r.Stage]; texts[i] == "" {
			texts[i] = "-"
		}
	}
	return texts
}
