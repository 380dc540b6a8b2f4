package vmstep

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

func progress(node string, vm int, stage string, ms int64) Event {
	return Event{Node: node, Progress: &Progress{VM: vm, Stage: stage, Millis: ms}}
}

var twoVMs = Event{State: StateReady, Millis: 9840, Map: []nodeagent.NodeVMs{nodeVMs("n1", 0, 0), nodeVMs("n2", 1, 1)}}

func TestPlainDisplayPrintsALineForEachChange(t *testing.T) {
	var out strings.Builder
	d := Display{Out: &out}
	for _, e := range []Event{
		{State: StateStarting, VMs: 2}, progress("n1", 0, "image", 90), progress("n2", 1, "image", 120),
		{Text: "from a prolog"}, progress("n1", 0, "boot", 2100), twoVMs,
	} {
		d.Show(e)
	}
	want := `slurm-v: n1 vm0: image (0.1 s)
slurm-v: n2 vm1: image (0.1 s)
from a prolog
slurm-v: n1 vm0: boot (2.1 s)
slurm-v: 2 VMs on 2 nodes ready in 9.8 s
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("output differs (-want +got):\n%s", diff)
	}
}

func TestTerminalDisplayRedrawsItsLines(t *testing.T) {
	var out strings.Builder
	d := Display{Out: &out, Terminal: true}
	for _, e := range []Event{progress("n1", 0, "image", 0), progress("n1", 1, "image", 0), {Text: "hello"}, twoVMs} {
		d.Show(e)
	}
	one, two := "slurm-v: n1 vm0: image (0.0 s)\n", "slurm-v: n1 vm1: image (0.0 s)\n"
	want := one + "\x1b[1A\x1b[J" + one + two + "\x1b[2A\x1b[J" + "hello\n" + one + two +
		"\x1b[2A\x1b[J" + "slurm-v: 2 VMs on 2 nodes ready in 9.8 s\n"
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("output differs (-want +got):\n%s", diff)
	}
}

func TestTerminalDisplayLeavesNoLineAfterAFailure(t *testing.T) {
	var out strings.Builder
	d := Display{Out: &out, Terminal: true}
	d.Show(progress("n1", 0, "image", 0))
	d.Show(Event{State: StateFailed, Reason: "no image"})
	if !strings.HasSuffix(out.String(), "\x1b[1A\x1b[J") {
		t.Errorf("the block was not removed: %q", out.String())
	}
}

func TestManyVMsAreCounted(t *testing.T) {
	const vms = 500
	var out strings.Builder
	d := Display{Out: &out}
	d.Show(Event{State: StateStarting, VMs: vms})
	for _, stage := range []string{"image", "boot"} {
		for vm := range vms {
			d.Show(progress(fmt.Sprint("n", vm/2), vm, stage, 1000))
		}
	}
	want := `slurm-v: 500 VMs: 1 image (1.0 s)
slurm-v: 500 VMs: 500 image (1.0 s)
slurm-v: 500 VMs: 499 image, 1 boot (1.0 s)
slurm-v: 500 VMs: 500 boot (1.0 s)
`
	if diff := cmp.Diff(want, out.String()); diff != "" {
		t.Errorf("output differs (-want +got):\n%s", diff)
	}
}
