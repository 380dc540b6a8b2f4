package main

import (
	"fmt"
	"runtime"
	"strings"
)

const intro = `# What Slurm-V costs without guests

Made by ` + "`make bench-scale`" + ` on a machine with %d cores. Each number is the median of %d round(s) of one run.
No VM starts: libvirt's test driver keeps a list of domains, and a guest agent in the node agent's own process
answers for each VM. Everything else is real: plan, journal, network, disks, the plugin, srun, one agent for
each job and node, the keeper.

![ms per VM on one node, and seconds until a job's nodes know all its VMs](scale.svg)

## Many VMs on one node

Milliseconds per VM, by how many VMs are launched and reclaimed at once. The last column is the growth:
1.0 from 16 VMs to 256 means that 16 times as many take 16 times as long.

`

// comparison is the prefix of the names of things that Slurm-V does not do.
const comparison = "for comparison"

// partNames has the parts in the order of the table.
var partNames = [][2]string{
	{"launch", "**launch**, the VMs in parallel, up to their names"},
	{"launch-no-overlay", comparison + ": with a qemu-img that does nothing"},
	{"reclaim", "**reclaim**"},
	{"plan", "admit and plan"},
	{"journal", "three entries of a domain in the journal, each on disk"},
	{"network", "tap with its filter"},
	{"network-one-by-one", comparison + ": a transaction for each"},
	{"unplug", "remove the tap"},
	{"unplug-one-by-one", comparison + ": each by itself"},
	{"overlay", "overlay by qemu-img, one after another"},
	{"seed", "seed disk"},
	{"define", "libvirt: define"},
	{"start", "libvirt: start"},
	{"undefine", "libvirt: destroy and undefine"},
}

func report(p parts, jobs []job) string {
	var text strings.Builder
	largest := jobs[len(jobs)-1]
	fmt.Fprintf(&text, intro, runtime.NumCPU(), largest.rounds)
	partsTable(&text, p)
	fmt.Fprintf(&text, nodesIntro, largest.nodes, largest.vms, largest.nodes)
	jobsTable(&text, jobs)
	text.WriteString(messagesIntro)
	messagesTable(&text, jobs)
	fmt.Fprint(&text, "\n## Where it bends\n\n", bends(p, jobs))
	return text.String()
}

func partsTable(text *strings.Builder, p parts) {
	counts := p.counts()
	text.WriteString("| ms per VM |")
	for _, vms := range counts {
		fmt.Fprintf(text, " %d |", vms)
	}
	text.WriteString(" growth |\n| --- |" + strings.Repeat(" --: |", len(counts)+1) + "\n")
	for _, name := range partNames {
		fmt.Fprintf(text, "| %s |", name[1])
		for _, vms := range counts {
			fmt.Fprintf(text, " %s |", number(p[name[0]][vms]))
		}
		fmt.Fprintf(text, " %.1f |\n", p.growth(name[0]))
	}
}

// growth returns how many times longer a VM takes among the most VMs than among 16.
func (p parts) growth(name string) float64 {
	counts := p.counts()
	return p[name][counts[len(counts)-1]] / p[name][16]
}

const nodesIntro = `
## Many nodes

A job of up to %d nodes, each a slurmd of its own on this machine, with one VM on each node and with %d.
The columns are seconds since ` + "`slurm-v-run --start`" + `:

- a step of ` + "`true`" + `: for comparison, a step on the same nodes that only runs ` + "`true`" + `
- first agent, last agent: the agent has said something, so the step exists and the plugin has started it
- last VMs: the VMs of the last node are up
- map sent: srun has taken the map for all nodes
- all have it: the last node has written the map into its VMs
- nodes free: how long after the end of the job its nodes are free again

All %d nodes share this machine's cores, so their agents take turns. On real nodes the part before the last VMs
would take as long as on one node. From the last VMs on, the keeper and srun work, which are one process each on any
cluster, and again every agent, which connects its network to the others' and tells its VMs.

`

func jobsTable(text *strings.Builder, jobs []job) {
	text.WriteString("| nodes | VMs | a step of `true` | first agent | last agent | last VMs | map sent | **all have it** | from the last VMs on | nodes free |\n")
	text.WriteString("|" + strings.Repeat(" --: |", 10) + "\n")
	for _, j := range jobs {
		fmt.Fprintf(text, "| %d | %d | %.2f | %.2f | %.2f | %.2f | %.2f | **%.2f** | %.2f | %.2f |\n", j.nodes, j.nodes*j.vms,
			j.plain, j.firstAgent, j.lastAgent, j.lastVMs, j.mapSent, j.done, j.done-j.lastVMs, j.free)
	}
}

const messagesIntro = `
A node sends its VMs' progress, its VMs, and that it has the map. It gets the map of all VMs. srun sends the map to
each node.

`

func messagesTable(text *strings.Builder, jobs []job) {
	text.WriteString("| nodes | VMs | messages of a node | lines | bytes | lines of the map | bytes | bytes that srun sends |\n")
	text.WriteString("|" + strings.Repeat(" --: |", 8) + "\n")
	for _, j := range jobs {
		fmt.Fprintf(text, "| %d | %d | %.0f | %.0f | %.0f | %.0f | %.0f | %.0f |\n", j.nodes, j.nodes*j.vms,
			j.messages, j.lines, j.bytes, j.mapLines, j.mapBytes, j.mapBytes*float64(j.nodes))
	}
}

// bends says what grows faster than it should, with the numbers of this run.
func bends(p parts, jobs []job) string {
	var text strings.Builder
	most := p.counts()[len(p.counts())-1]
	fmt.Fprintf(&text, "On one node, %d VMs are launched in %.1f s and reclaimed in %.1f s; of the launch %.0f %% is qemu-img.\n",
		most, p["launch"][most]*float64(most)/1000, p["reclaim"][most]*float64(most)/1000,
		100*(1-p["launch-no-overlay"][most]/p["launch"][most]))
	for _, name := range partNames {
		if growth := p.growth(name[0]); growth > 1.5 && p[name[0]][most] > 0.1 && !strings.HasPrefix(name[1], comparison) {
			fmt.Fprintf(&text, "A VM takes %.1f times as long among %d as among 16: %s.\n", growth, most, strings.ReplaceAll(name[1], "**", ""))
		}
	}
	fmt.Fprintf(&text, "One by one, %d taps would take %.1f times as long to make and %.1f times to remove.\n",
		most, p["network-one-by-one"][most]/p["network"][most], p["unplug-one-by-one"][most]/p["unplug"][most])
	for _, many := range jobs {
		if few := find(jobs, many.nodes/4, many.vms); few != nil && many.nodes > 16 {
			fmt.Fprintf(&text, "\nFrom %d nodes to %d, %d VM(s) on each: a step of `true` takes %.1f times as long, a job until all nodes have the map "+
				"%.1f times, and from the last VMs on %.1f times (%.2f s and %.2f s).\n", few.nodes, many.nodes, many.vms, many.plain/few.plain,
				many.done/few.done, (many.done-many.lastVMs)/(few.done-few.lastVMs), few.done-few.lastVMs, many.done-many.lastVMs)
		}
	}
	return text.String()
}

func find(jobs []job, nodes, vms int) *job {
	for i := range jobs {
		if jobs[i].nodes == nodes && jobs[i].vms == vms {
			return &jobs[i]
		}
	}
	return nil
}

func number(ms float64) string {
	if ms < 1 {
		return fmt.Sprintf("%.3f", ms)
	}
	return fmt.Sprintf("%.1f", ms)
}
