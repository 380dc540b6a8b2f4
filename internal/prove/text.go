package prove

import (
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/slurm-v/slurm-v/internal/report"
)

// WriteText prints a line for each step, and one for each cost.
func (p Proof) WriteText(out io.Writer) error {
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, s := range p.Steps {
		fmt.Fprintf(t, "%s\t%s\t%.1f s\t%s\n", s.Result, s.Name, s.Seconds, s.Proves)
		if s.Reason != "" {
			fmt.Fprintf(t, "\t\t\t→ %s\n", s.Reason)
		}
	}
	if len(p.Costs) > 0 {
		fmt.Fprintln(t, "\nCOST\tBARE\tIN VMS\t")
	}
	for _, c := range p.Costs {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", c.Name, c.value(c.BareMedian), c.value(c.VMsMedian), c.Verdict)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(out, "\n%s.\n", p.Headline())
	return err
}

// Headline says in a sentence what was proven.
func (p Proof) Headline() string {
	of := map[Result]int{}
	for _, s := range p.Steps {
		of[s.Result]++
	}
	if p.Passed {
		return fmt.Sprintf("Slurm-V works here: %s passed, %d skipped", report.Count(of[Passed], "step"), of[Skipped])
	}
	return fmt.Sprintf("Slurm-V does not work here as it should: %d of %d steps failed", of[Failed], len(p.Steps))
}
