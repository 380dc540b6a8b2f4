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
searches, or of the iterations, as the program measures it: %s, and in SACJ %s.

| | VMs of Slurm-V | one big VM per node |
| --- | --- | --- |
| EASJ, one program after the other | 2 ranks, one in each of 2 VMs of a node | the same 2 ranks in 1 VM |
| EACJ, two programs at once in one job | both with 2 ranks, in the same 2 VMs with 4 vCPUs, with an IVShmem device each | the same 4 ranks in 1 VM with 4 vCPUs |
| SACJ, four jobs of two users at once | each with 2 ranks in 2 VMs with 1 vCPU, one on each of 2 nodes | the same 8 ranks in 2 VMs with 8 vCPUs |

The big VM stands for the bare node, as in the paper's native runs: one operating system on
each node, and shared memory between its ranks. All sides use the same emulator or KVM.

The programs are built with MPICH and not changed. In EASJ and EACJ the same VMs are measured twice: with ` + "`--mpi-shm=on`" + `,
where ranks of two VMs talk through the job's shared memory ([mpi.md](mpi.md#shared-memory-between-vms)), and with
` + "`--mpi-shm=off`" + `, where they talk by TCP. In SACJ no two ranks of a job are on one node.
`

const tail = `
The figures are in [applications.json](applications.json), in seconds.
` + "`make bench-apps`" + ` measures anew and writes both files.
`

// report returns the Markdown text about the figures.
func report(r record) string {
	var text strings.Builder
	fmt.Fprintf(&text, head, quoted(r.Apps[:2]), quoted(r.Apps[2:]))
	text.WriteString(conditions(r))
	text.WriteString(table(r))
	text.WriteString(tail)
	return text.String()
}

func quoted(commands []string) string { return "`" + strings.Join(commands, "` and `") + "`" }

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
Everything was measured %d times, the sides in turns, for EASJ and EACJ each time in new VMs. The table has the median, and the least
and the greatest time in brackets.
`

const emulated = `
There is no KVM: the VMs are emulated, on all sides. A comparison with the bare nodes, as in
the paper, would measure the emulator, so it is not made here; on a machine with KVM the same
command adds it. Ranks poll while they wait. EASJ has a core for each rank; in EACJ two ranks share a core, in SACJ four, and
most of a time there is waiting for a core, to answer a message.
`

const unsteady = `
A difference is shown only if the upper quartile of each side's times is at most twice its lower one.
`

// table has a line for each app of each scenario: the medians, and how much longer the VMs of
// Slurm-V take than the others.
func table(r record) string {
	var text strings.Builder
	sides := []string{shared, apart, big}
	if slices.ContainsFunc(r.Series, func(s series) bool { return s.Side == bare }) {
		sides = append(sides, bare)
	}
	text.WriteString("| scenario | program |")
	for _, side := range sides {
		fmt.Fprintf(&text, " %s, s |", side)
	}
	text.WriteString(" VMs of Slurm-V |\n| --- | --- |" + strings.Repeat(" --: |", len(sides)) + " --- |\n")
	for _, s := range r.Series {
		if s.Side == big {
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
		if seconds := r.seconds(scenario, side, app); len(seconds) > 0 {
			line += fmt.Sprintf(" %.2f (%.2f–%.2f) |", stats.Median(seconds), slices.Min(seconds), slices.Max(seconds))
		} else {
			line += " – |"
		}
	}
	return line + " " + r.differences(scenario, app, sides) + " |\n"
}

// notShown replaces a difference if the times vary too much.
const notShown = "not shown"

// differences returns how long the VMs of Slurm-V take in comparison with each of the other sides. sides are in the
// order of the table: the first one with times is compared with the others.
func (r record) differences(scenario, app string, sides []string) string {
	sides = slices.DeleteFunc(slices.Clone(sides), func(side string) bool { return len(r.seconds(scenario, side, app)) == 0 })
	var all []string
	for _, side := range sides[1:] {
		all = append(all, difference(r.seconds(scenario, sides[0], app), r.seconds(scenario, side, app), side))
	}
	return strings.Join(all, "; ")
}

// difference returns the ratio of the medians of times to those of a side.
func difference(in, than []float64, side string) string {
	if !steady(in) || !steady(than) {
		return notShown + " for " + side
	}
	return fmt.Sprintf("%.2f times the time of %s", stats.Median(in)/stats.Median(than), side)
}

// steady reports whether half of the times, those in the middle, differ by a factor of two at most.
func steady(seconds []float64) bool {
	return stats.Percentile(seconds, 75) <= 2*stats.Percentile(seconds, 25)
}

func (r record) seconds(scenario, side, app string) []float64 {
	for _, s := range r.Series {
		if s.Scenario == scenario && s.Side == side && s.App == app {
			return s.Seconds
		}
	}
	return nil
}
