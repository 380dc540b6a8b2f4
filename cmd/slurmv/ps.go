package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/internal/jobvms"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/slurm"
)

type psOptions struct {
	jobs   []string
	all    bool
	long   bool
	output string
}

func newPS() *cobra.Command {
	var o psOptions
	c := &cobra.Command{
		Use:   "ps [flags] [JOB...]",
		Short: "List my VMs",
		Long: `List the VMs of my running jobs: job, VM, node, address, state and age.

Inside a job, list the VMs of this job only. slurmv asks the agent on each node, so
the list shows what runs there now. A job whose VMs are still starting has one line
per node with the state "starting".

With --output json it prints a list of objects, one per VM, with the keys job,
job_id, user, vm, number, node, address, mac, state, started, age_seconds and stages
(of the VM's own launch, see slurmv report). cpus and emulator_cpus are the node's CPUs
to which the vCPUs and QEMU's other threads are pinned; unpinned says why they are not.
clock has the rate of the VM's clock (1 is as fast as the node's), error, by which the true
rate may differ, and source, the kernel's. There is no clock before it is measured.

EXIT STATUS
===========

    0   the VMs are listed; there may be none
    1   Slurm or some agent did not answer; the others are listed
    2   the command line cannot be run`,
		Example: `  slurmv ps
  slurmv ps 4217
  slurmv ps --output json | jq '.[].address'`,
		RunE: func(c *cobra.Command, args []string) error {
			o.jobs = args
			return runPS(c.Context(), o, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.BoolVarP(&o.all, "all", "a", false, "list all my jobs with VMs, not only this one; as root, those of all users")
	f.BoolVarP(&o.long, "long", "l", false, "show also user, MAC address, time of the launch, the node's CPUs that only this VM uses, and how many times as fast as the node's clock the VM's runs")
	addOutput(c, &o.output)
	return c
}

// addOutput adds --output, for people or for programs.
func addOutput(c *cobra.Command, output *string) {
	c.Flags().StringVarP(output, "output", "o", "text", "print in this `format`: text or json")
}

func checkOutput(output string) error {
	if output != "text" && output != "json" {
		return usagef("--output: %q is neither text nor json", output)
	}
	return nil
}

func runPS(ctx context.Context, o psOptions, out, words io.Writer) error {
	if err := checkOutput(o.output); err != nil {
		return err
	}
	selected, err := o.which(os.Getenv, os.Getuid())
	if err != nil {
		return err
	}
	jobs, err := jobvms.FindAll(ctx, selected)
	if err != nil {
		return err
	}
	asked, askErr := jobvms.AskAll(ctx, jobs)
	rows := rowsOf(asked, time.Now())
	if len(jobs) == 0 {
		fmt.Fprintln(words, none(selected))
	}
	if o.output == "json" {
		return errors.Join(printJSON(out, rows), askErr)
	}
	return errors.Join(printRows(out, rows, o.long), askErr)
}

// which says which jobs to list. Without arguments this depends on where slurmv runs:
// inside a job it is this job.
func (o psOptions) which(env func(string) string, uid int) (slurm.Which, error) {
	for _, job := range o.jobs {
		if err := jobvms.CheckJob(job); err != nil {
			return slurm.Which{}, err
		}
	}
	switch job := env(slurm.EnvJobID); {
	case len(o.jobs) > 0:
		return slurm.Which{Jobs: o.jobs}, nil
	case o.all:
		return slurm.Which{Everyone: uid == 0}, nil
	case job != "":
		return slurm.Which{Jobs: []string{job}}, nil
	}
	return slurm.Which{}, nil
}

// none says that none of the selected jobs has VMs.
func none(w slurm.Which) string {
	switch {
	case len(w.Jobs) == 1:
		return "Job " + w.Jobs[0] + " has no running VMs."
	case len(w.Jobs) > 1:
		return "None of the jobs " + strings.Join(w.Jobs, ", ") + " has running VMs."
	case w.Everyone:
		return "No job has running VMs."
	}
	return "None of your jobs has running VMs."
}

// A row is one VM in the output of slurmv ps. A row without VM is a node on which the VMs
// are not up yet.
type row struct {
	Job     string            `json:"job"` // as Slurm writes it, 4217_3 in an array
	JobID   uint32            `json:"job_id"`
	User    string            `json:"user"`
	VM      string            `json:"vm,omitempty"`
	Number  int               `json:"number"` // of the VM in the job
	Node    string            `json:"node"`
	Address string            `json:"address,omitempty"`
	MAC     string            `json:"mac,omitempty"`
	State   string            `json:"state"`
	Started time.Time         `json:"started"`
	Age     int64             `json:"age_seconds"`
	Stages  []nodeagent.Stage `json:"stages,omitempty"`

	CPUs         string `json:"cpus,omitempty"` // of the node, to which the vCPUs are pinned: 0-3
	EmulatorCPUs string `json:"emulator_cpus,omitempty"`
	Unpinned     string `json:"unpinned,omitempty"` // why they are not

	Clock *nodeagent.Clock `json:"clock,omitempty"`
}

func rowsOf(jobs []jobvms.Job, now time.Time) []row {
	rows := []row{}
	for _, j := range jobs {
		for _, n := range j.Nodes {
			common := row{Job: j.Name, JobID: j.ID, User: j.User, Node: n.Node, Started: j.Started, Number: -1,
				State: "starting", Age: int64(max(0, now.Sub(j.Started)) / time.Second)}
			if len(n.VMs) == 0 {
				rows = append(rows, common)
			}
			for _, vm := range n.VMs {
				r := common
				r.VM, r.Number, r.Address, r.MAC, r.State, r.Stages = vm.Name, vm.Number, vm.Address, vm.MAC, vm.State, vm.Stages
				r.CPUs, r.EmulatorCPUs, r.Unpinned = vm.CPUs, vm.EmulatorCPUs, n.Unpinned
				r.Clock = vm.Clock
				rows = append(rows, r)
			}
		}
	}
	return rows
}

func printJSON(out io.Writer, v any) error {
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

func printRows(out io.Writer, rows []row, long bool) error {
	if len(rows) == 0 {
		return nil
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprint(t, "JOB\tVM\tNODE\tADDRESS\tSTATE\tAGE")
	if long {
		fmt.Fprint(t, "\tUSER\tMAC\tLAUNCH\tCPUS\tCLOCK")
	}
	fmt.Fprintln(t)
	for _, r := range rows {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s", r.Job, orDash(r.VM), r.Node, orDash(r.Address), orDash(r.State), age(r.Age))
		if long {
			fmt.Fprintf(t, "\t%s\t%s\t%s\t%s\t%s", r.User, orDash(r.MAC), launchTime(r.Stages), r.ownCPUs(), clockRate(r.Clock))
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// ownCPUs are the node's CPUs that only this VM uses.
func (r row) ownCPUs() string {
	if r.Unpinned != "" {
		return "not pinned"
	}
	return orDash(r.CPUs)
}

// clockRate shows the rate of the VM's clock and its clock source.
func clockRate(c *nodeagent.Clock) string {
	if c == nil {
		return "-"
	}
	return fmt.Sprintf("%.3f %s", c.Rate, c.Source)
}

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// age shows the two largest units that are not zero.
func age(seconds int64) string {
	s := seconds % 60
	m := seconds / 60 % 60
	h := seconds / 3600 % 24
	d := seconds / 86400
	switch {
	case d > 0:
		return fmt.Sprintf("%dd%dh", d, h)
	case h > 0:
		return fmt.Sprintf("%dh%dm", h, m)
	case m > 0:
		return fmt.Sprintf("%dm%ds", m, s)
	}
	return fmt.Sprintf("%ds", s)
}

// launchTime is the time from the beginning of the launch on the node.
func launchTime(stages []nodeagent.Stage) string {
	if len(stages) == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1fs", stages[len(stages)-1].End.Seconds())
}
