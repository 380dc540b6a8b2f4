package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/bench/stats"
)

const head = `# Applications in VMs

Two MPI programs of [examples](../examples), in the three ways in which jobs can use VMs:

- [bfs](../examples/bfs.c) searches a Kronecker graph breadth first, in the style of
  Graph500. Every search's tree is validated against the list of edges, which is made
  anew for that.
- [cg](../examples/cg.c) finds the smallest eigenvalue of a random sparse matrix by inverse
  iteration and conjugate gradients, in the style of NAS CG. The matrix is made of known
  eigenvalues and rotations, and every iteration's result is verified against the value that
  these give without the matrix, the solver and messages, to ten digits.

A time counts only if its result was verified: all here were. It is the time of the
searches, or of the iterations, as the program measures it: %s.

| | VMs of Slurm-V | one big VM per node |
| --- | --- | --- |
| EASJ, one program after the other | 4 ranks, one in each of 4 VMs on 2 nodes | the same 4 ranks in 2 VMs on 2 nodes |
| EACJ, two programs at once in one job | both with 4 ranks, in the same 4 VMs with 8 vCPUs, with an IVShmem device each | the same 8 ranks in 2 VMs with 8 vCPUs |
| SACJ, four jobs of two users at once | each with 2 ranks in 2 VMs with 1 vCPU, one on each node | the same 8 ranks in 2 VMs with 8 vCPUs |

The big VM stands for the bare node, as the paper's native runs have it: one operating
system on each node, shared memory between its ranks, a network to the other node. The
emulator or KVM is the same on both sides.
`

const tail = `
What this does not show: shared memory between VMs. MPICH, which the programs are built
with, knows nothing of IVShmem, so ranks in two VMs of a node talk by TCP here, and those
in a big VM by shared memory. The paper's library, MVAPICH2, used IVShmem there; nothing
of an MPI library is made anew here. The runs of EACJ and SACJ claim devices and leave
them idle; how fast these are is in [ivshmem.md](ivshmem.md).

The figures are in [applications.json](applications.json), in seconds.
` + "`make bench-apps`" + ` measures anew and writes both files.
`

// report is the Markdown text about the figures.
func report(r record) string {
	var text strings.Builder
	fmt.Fprintf(&text, head, "`"+strings.Join(r.Apps, "`, `")+"`")
	text.WriteString(conditions(r))
	text.WriteString(table(r))
	text.WriteString(tail)
	return text.String()
}

func conditions(r record) string {
	var text strings.Builder
	fmt.Fprintf(&text, measured, r.Taken, r.Cores, r.Rounds)
	if r.Load > float64(r.Cores) { // less is what brings the cluster up
		fmt.Fprintf(&text, "\n**The machine had other work to do when this was measured (load %.1f): an example of the\n"+
			"report, not a fair comparison.**\n", r.Load)
	}
	if !r.KVM {
		text.WriteString(emulated)
	}
	return text.String() + "\n"
}

const measured = `
Measured on %s on the development cluster, whose nodes share a machine with %d cores.
Everything was measured %d times, the sides in turns: medians, and in brackets the least
and the most.
`

const emulated = `
There is no KVM: the VMs are emulated, on both sides. The paper's own comparison, with the
bare nodes, would be one with the emulator, so it is not made here; on a machine with KVM
the same command adds it. Ranks poll while they wait, and there are two to four of
them for each core: most of a time here is waiting for a core, to answer a message. More
messages by TCP then cost far more than they do where each rank has a core.
`

// table has a line for each app of each scenario: medians, and what VMs take longer.
func table(r record) string {
	var text strings.Builder
	sides := []string{small, big}
	if slices.ContainsFunc(r.Series, func(s series) bool { return s.Side == bare }) {
		sides = append(sides, bare)
	}
	text.WriteString("| scenario | program |")
	for _, side := range sides {
		fmt.Fprintf(&text, " %s, s |", side)
	}
	for _, side := range sides[1:] {
		fmt.Fprintf(&text, " overhead to %s |", side)
	}
	text.WriteString("\n| --- | --- |" + strings.Repeat(" --: |", 2*len(sides)-1) + "\n")
	for _, s := range r.Series {
		if s.Side == small {
			text.WriteString(r.line(s.Scenario, s.App, sides))
		}
	}
	return text.String()
}

func (r record) line(scenario, app string, sides []string) string {
	line := fmt.Sprintf("| %s | %s |", scenario, app)
	for _, side := range sides {
		seconds := r.seconds(scenario, side, app)
		line += fmt.Sprintf(" %.2f (%.2f–%.2f) |", stats.Median(seconds), slices.Min(seconds), slices.Max(seconds))
	}
	in := stats.Median(r.seconds(scenario, small, app))
	for _, side := range sides[1:] {
		line += fmt.Sprintf(" %+.0f %% |", (in/stats.Median(r.seconds(scenario, side, app))-1)*100)
	}
	return line + "\n"
}

func (r record) seconds(scenario, side, app string) []float64 {
	for _, s := range r.Series {
		if s.Scenario == scenario && s.Side == side && s.App == app {
			return s.Seconds
		}
	}
	return nil
}
