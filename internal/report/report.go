// Package report shows how the VMs of a job started, from the records that its nodes
// leave of each launch: as a table like Table 1 of the Slurm-V paper, and as a picture
// with a bar for every stage.
//
// Times on one node are exact: they come from one monotonic clock. Different nodes are
// aligned by their wall clocks, so times between nodes are only as exact as those clocks.
package report

import (
	"cmp"
	"slices"
	"time"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

// meanings say what happens in a stage.
var meanings = map[string]string{
	nodeagent.StageQueue:    "Slurm starts the step on the node",
	nodeagent.StagePlan:     "the request is checked, the VMs are planned",
	nodeagent.StageImage:    "the image is found, and brought to the node",
	nodeagent.StageVF:       "virtual functions are leased and set",
	nodeagent.StageTaps:     "the bridge and taps of the job's network are made",
	nodeagent.StageLibvirt:  "libvirt's driver is opened, and finds out about QEMU if it is new on the node",
	nodeagent.StageIVShmem:  "the VMs' shared memory is allocated",
	nodeagent.StageWait:     "other VMs of the node come first",
	nodeagent.StageTemplate: "a template to restore the VMs from is looked for, or made",
	nodeagent.StageDisk:     "the VM's overlay and seed disk are made",
	nodeagent.StageRestore:  "the VM is restored from the template, until its agent answers",
	nodeagent.StageDefine:   "the VM is described to libvirt",
	nodeagent.StageStart:    "QEMU is started",
	nodeagent.StageBoot:     "the guest boots, until its agent answers",
	nodeagent.StageAgent:    "the guest agent sets up users, mounts, devices, addresses",
	nodeagent.StageNetwork:  "the VMs of all nodes are told of each other",
	ready:                   "all of it, from the request for the VMs",
}

// ready is the row of the table for the whole launch.
const ready = nodeagent.StateReady

// A Row says how long a stage took, over all VMs of the job. A shared stage counts for
// each VM.
type Row struct {
	Stage            string
	Min, Median, Max time.Duration
	Meaning          string
}

// Rows returns the stages in the order of their first begin. The last row is the time
// until VMs were ready.
func Rows(nodes []nodeagent.NodeVMs) []Row {
	took, began := map[string][]time.Duration{}, map[string]time.Duration{}
	for _, n := range nodes {
		for _, vm := range n.VMs {
			for _, s := range stagesOf(n, vm) {
				took[s.Name] = append(took[s.Name], s.End-s.Start)
				began[s.Name] = min(s.Start, valueOr(began, s.Name, s.Start))
			}
			if total, up := untilReady(n, vm); up {
				took[ready], began[ready] = append(took[ready], total), 1<<62
			}
		}
	}
	var rows []Row
	for stage, times := range took {
		slices.Sort(times)
		rows = append(rows, Row{stage, times[0], median(times), times[len(times)-1], meanings[stage]})
	}
	slices.SortFunc(rows, func(a, b Row) int {
		return cmp.Or(cmp.Compare(began[a.Stage], began[b.Stage]), cmp.Compare(a.Stage, b.Stage))
	})
	return rows
}

// median of times in order.
func median(times []time.Duration) time.Duration {
	n := len(times)
	return (times[(n-1)/2] + times[n/2]) / 2
}

func valueOr(all map[string]time.Duration, key string, otherwise time.Duration) time.Duration {
	if v, found := all[key]; found {
		return v
	}
	return otherwise
}

// stagesOf returns the stages of a VM and those that it shares, in the order of their
// begin.
func stagesOf(n nodeagent.NodeVMs, vm nodeagent.VM) []nodeagent.Stage {
	return slices.SortedStableFunc(slices.Values(slices.Concat(n.Stages, vm.Stages)), func(a, b nodeagent.Stage) int {
		return cmp.Compare(a.Start, b.Start)
	})
}

// untilReady returns the time from the request, as far as it is known, until the VM was
// ready; up is false if it never was.
func untilReady(n nodeagent.NodeVMs, vm nodeagent.VM) (total time.Duration, up bool) {
	stages := stagesOf(n, vm)
	if len(stages) == 0 || vm.State == nodeagent.StateFailed {
		return 0, false
	}
	return last(stages) - stages[0].Start, true
}

func last(stages []nodeagent.Stage) (end time.Duration) {
	for _, s := range stages {
		end = max(end, s.End)
	}
	return end
}

// A Summary describes a launch in one line.
type Summary struct {
	VMs, Nodes int
	Ready      time.Duration // from the first request to the last VM, by the nodes' wall clocks
}

// Summarize computes the summary of the nodes' records.
func Summarize(nodes []nodeagent.NodeVMs) Summary {
	s := Summary{Nodes: len(nodes)}
	var end time.Duration
	zero := firstRequest(nodes)
	for _, n := range nodes {
		for _, vm := range n.VMs {
			s.VMs++
			end = max(end, n.Began.Sub(zero)+last(stagesOf(n, vm)))
		}
	}
	s.Ready = end
	return s
}

// firstRequest returns when the first stage of any node began.
func firstRequest(nodes []nodeagent.NodeVMs) (first time.Time) {
	for _, n := range nodes {
		at := n.Began
		for _, s := range n.Stages {
			if queued := n.Began.Add(s.Start); queued.Before(at) {
				at = queued
			}
		}
		if first.IsZero() || at.Before(first) {
			first = at
		}
	}
	return first
}
