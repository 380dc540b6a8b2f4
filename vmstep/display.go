package vmstep

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

// manyVMs is the largest number of VMs that are shown one by one.
const manyVMs = 20

// A Display shows how the VMs start. On a terminal it redraws a block of lines; elsewhere
// it prints a line for every change. With more than manyVMs VMs it shows how many are at
// which stage.
type Display struct {
	Out      io.Writer
	Terminal bool

	total  int // VMs of the job, if known
	vms    map[int]vmStage
	stages []string // in the order in which they were first seen
	drawn  int      // lines of the block on the terminal
}

type vmStage struct {
	node  string
	stage string
	ms    int64
}

// Show takes one event.
func (d *Display) Show(e Event) {
	switch {
	case e.Text != "":
		d.clear()
		fmt.Fprintln(d.Out, e.Text)
		d.redraw()
	case e.Progress != nil:
		d.progress(e.Node, *e.Progress)
	case e.State == StateReady:
		d.clear()
		fmt.Fprintln(d.Out, readyLine(e.Map, e.Millis))
	case e.State == StateStarting:
		d.total = e.VMs
	case e.State != "":
		d.clear()
	}
}

func (d *Display) progress(node string, p Progress) {
	if p.Stage == "" {
		d.clear()
		fmt.Fprintf(d.Out, "slurm-v: %s: %s (%s)\n", node, p.Note, seconds(p.Millis))
		d.redraw()
		return
	}
	if d.vms == nil {
		d.vms = map[int]vmStage{}
	}
	d.vms[p.VM] = vmStage{node, p.Stage, p.Millis}
	if !slices.Contains(d.stages, p.Stage) {
		d.stages = append(d.stages, p.Stage)
	}
	if d.Terminal {
		d.clear()
		d.redraw()
		return
	}
	d.plain(p)
}

// plain prints a line for the change of one VM. With many VMs it prints two lines for each
// stage: when the first VM enters the stage, and when the last one has.
func (d *Display) plain(p Progress) {
	if !d.many() {
		fmt.Fprintln(d.Out, vmLine(p.VM, d.vms[p.VM]))
		return
	}
	here := 0
	for _, vm := range d.vms {
		if vm.stage == p.Stage {
			here++
		}
	}
	if here == 1 || here == d.total {
		fmt.Fprintln(d.Out, d.counts())
	}
}

func (d *Display) many() bool { return max(d.total, len(d.vms)) > manyVMs }

// clear removes the block from the terminal.
func (d *Display) clear() {
	if d.drawn > 0 {
		fmt.Fprintf(d.Out, "\x1b[%dA\x1b[J", d.drawn)
		d.drawn = 0
	}
}

func (d *Display) redraw() {
	if !d.Terminal || len(d.vms) == 0 {
		return
	}
	lines := d.block()
	fmt.Fprintln(d.Out, strings.Join(lines, "\n"))
	d.drawn = len(lines)
}

func (d *Display) block() []string {
	if d.many() {
		return []string{d.counts()}
	}
	var lines []string
	for _, number := range d.numbers() {
		lines = append(lines, vmLine(number, d.vms[number]))
	}
	return lines
}

func (d *Display) numbers() []int {
	var numbers []int
	for n := range d.vms {
		numbers = append(numbers, n)
	}
	slices.Sort(numbers)
	return numbers
}

func vmLine(number int, vm vmStage) string {
	return fmt.Sprintf("slurm-v: %s vm%d: %s (%s)", vm.node, number, vm.stage, seconds(vm.ms))
}

// counts names each stage with the number of VMs in it.
func (d *Display) counts() string {
	n := map[string]int{}
	var latest int64
	for _, vm := range d.vms {
		n[vm.stage]++
		latest = max(latest, vm.ms)
	}
	var texts []string
	for _, stage := range d.stages {
		if n[stage] > 0 {
			texts = append(texts, fmt.Sprintf("%d %s", n[stage], stage))
		}
	}
	return fmt.Sprintf("slurm-v: %d VMs: %s (%s)", max(d.total, len(d.vms)), strings.Join(texts, ", "), seconds(latest))
}

func readyLine(nodes []nodeagent.NodeVMs, ms int64) string {
	return fmt.Sprintf("slurm-v: %s on %s ready in %s", count(countVMs(nodes), "VM"), count(len(nodes), "node"), seconds(ms))
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func seconds(ms int64) string {
	return fmt.Sprintf("%.1f s", float64(ms)/1000)
}
