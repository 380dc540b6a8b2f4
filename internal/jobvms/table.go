package jobvms

import (
	"cmp"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

// A Listed is one VM in a list of jobs' VMs. One without VM is a node on which the VMs
// are not up yet.
type Listed struct {
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

// List lists the VMs of the jobs.
func List(jobs []Job, now time.Time) []Listed {
	rows := []Listed{}
	for _, j := range jobs {
		for _, n := range j.Nodes {
			common := Listed{Job: j.Name, JobID: j.ID, User: j.User, Node: n.Node, Started: j.Started, Number: -1,
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

// WriteTable prints a line for each VM, or a long one.
func WriteTable(out io.Writer, rows []Listed, long bool) error {
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
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s", r.Job, cmp.Or(r.VM, "-"), r.Node, cmp.Or(r.Address, "-"), cmp.Or(r.State, "-"), age(r.Age))
		if long {
			fmt.Fprintf(t, "\t%s\t%s\t%s\t%s\t%s", r.User, cmp.Or(r.MAC, "-"), launchTime(r.Stages), r.ownCPUs(), clockRate(r.Clock))
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}

// ownCPUs are the node's CPUs that only this VM uses.
func (r Listed) ownCPUs() string {
	if r.Unpinned != "" {
		return "not pinned"
	}
	return cmp.Or(r.CPUs, "-")
}

// clockRate shows the rate of the VM's clock and its clock source.
func clockRate(c *nodeagent.Clock) string {
	if c == nil {
		return "-"
	}
	return fmt.Sprintf("%.3f %s", c.Rate, c.Source)
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
