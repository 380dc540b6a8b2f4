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
  Graph500. The program makes the list of edges anew to validate every search's tree.
- [cg](../examples/cg.c) finds the smallest eigenvalue of a random sparse matrix by inverse
  iteration and conjugate gradients, in the style of NAS CG. The matrix is made of known
  eigenvalues and rotations. These give the right value without the matrix, the solver and
  messages, and the program verifies every iteration's result against it, to ten digits.

A time counts only if its result was verified. All results here were. A time is that of the
searches, or of the iterations, as the program measures it: %s.

| | VMs of Slurm-V | one big VM per node |
| --- | --- | --- |
| EASJ, one program after the other | 4 ranks, one in each of 4 VMs on 2 nodes | the same 4 ranks in 2 VMs on 2 nodes |
| EACJ, two programs at once in one job | both with 4 ranks, in the same 4 VMs with 8 vCPUs, with an IVShmem device each | the same 8 ranks in 2 VMs with 8 vCPUs |
| SACJ, four jobs of two users at once | each with 2 ranks in 2 VMs with 1 vCPU, one on each node | the same 8 ranks in 2 VMs with 8 vCPUs |

The big VM stands for the bare node, as in the paper's native runs: one operating system on
each node, shared memory between its ranks, a network to the other node. Both sides use the
same emulator or KVM.
`

const tail = `
The table does not show shared memory between VMs, either. The programs are built with MPICH,
which talks through it only if a device is large enough ([mpi.md](mpi.md)), and the devices here
have 1 MiB. So ranks in two VMs of a node talk by TCP here, and those in a big VM by shared memory.
The paper's library, MVAPICH2, used IVShmem there. The runs of EACJ and SACJ claim devices and
leave them idle;
[ivshmem.md](ivshmem.md) says how fast the devices are.

The figures are in [applications.json](applications.json), in seconds.
` + "`make bench-apps`" + ` measures anew and writes both files.
`

// report returns the Markdown text about the figures.
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
	if r.Load > float64(r.Cores) { // the cluster alone causes a lower load
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
Everything was measured %d times, the sides in turns. The table has the median, and the least
and the greatest time in brackets.
`

const emulated = `
There is no KVM: the VMs are emulated, on both sides. A comparison with the bare nodes, as in
the paper, would measure the emulator, so it is not made here; on a machine with KVM the same
command adds it. Ranks poll while they wait, and there are two to four ranks for each core.
So most of a time here is waiting for a core, to answer a message. Messages by TCP then cost
far more than they do where each rank has a core.
`

const unsteady = `
An overhead is shown only if the greatest time of each side is at most twice its least. Where
it is not shown, the figures do not say what VMs cost an application. They say that all runs
end with the right result, and that a run which waits for cores can take many times longer.
The overhead has to be measured where each rank has a core, with KVM.
`

// table has a line for each app of each scenario: the medians, and how much longer VMs
// take.
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
	text.WriteString(" overhead |\n| --- | --- |" + strings.Repeat(" --: |", len(sides)) + " --- |\n")
	for _, s := range r.Series {
		if s.Side == small {
			text.WriteString(r.line(s.Scenario, s.App, sides))
		}
	}
	if strings.Contains(text.String(), notShown) {
		text.WriteString(unsteady)
	}
	return text.String()
}

func (r record) line(scenario, app string, sides []string) string {
	line := fmt.Sprintf("| %s | %s |", scenario, app)
	for _, side := range sides {
		seconds := r.seconds(scenario, side, app)
		line += fmt.Sprintf(" %.2f (%.2f–%.2f) |", stats.Median(seconds), slices.Min(seconds), slices.Max(seconds))
	}
	return line + " " + r.overhead(scenario, app, sides) + " |\n"
}

// notShown replaces an overhead if the times vary too much.
const notShown = "not shown"

// overhead returns how much longer the VMs of Slurm-V take than each of the other sides.
func (r record) overhead(scenario, app string, sides []string) string {
	if slices.ContainsFunc(sides, func(side string) bool { return !steady(r.seconds(scenario, side, app)) }) {
		return notShown
	}
	in := stats.Median(r.seconds(scenario, small, app))
	var all []string
	for _, side := range sides[1:] {
		all = append(all, fmt.Sprintf("%+.0f %% to %s", (in/stats.Median(r.seconds(scenario, side, app))-1)*100, side))
	}
	return strings.Join(all, ", ")
}

// steady reports whether the greatest time is at most twice the least.
func steady(seconds []float64) bool { return slices.Max(seconds) <= 2*slices.Min(seconds) }

func (r record) seconds(scenario, side, app string) []float64 {
	for _, s := range r.Series {
		if s.Scenario == scenario && s.Side == side && s.App == app {
			return s.Seconds
		}
	}
	return nil
}
