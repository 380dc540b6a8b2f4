package task

import (
	"testing"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

func TestCauseOfALostProgram(t *testing.T) {
	vm := nodeagent.VM{Number: 3, Name: "vm3"}
	off := nodeagent.VM{Number: 3, Name: "vm3", Cause: "powered itself off"}
	other := nodeagent.VM{Number: 2, Name: "vm2", Cause: "crashed"}
	mine := nodeagent.Claim{Device: 1, Number: 7}
	tests := map[string]struct {
		node  nodeagent.NodeVMs
		claim string
		want  string
	}{
		"its VM has ended":       {nodeagent.NodeVMs{VMs: []nodeagent.VM{other, off}}, "1.7", "vm3 powered itself off, and the program in it is lost"},
		"another VM has ended":   {nodeagent.NodeVMs{VMs: []nodeagent.VM{other, vm}}, "", ""},
		"its claim has ended":    {nodeagent.NodeVMs{Claims: []nodeagent.Claim{{Device: 1, Number: 8}}}, "1.7", "the run has lost its claim on IVShmem device 1, so its program in vm3 was ended"},
		"its claim lives":        {nodeagent.NodeVMs{Claims: []nodeagent.Claim{mine}}, "1.7", ""},
		"it never had any claim": {nodeagent.NodeVMs{Claims: []nodeagent.Claim{mine}}, "", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := (Exec{Claim: tt.claim}).causeIn(tt.node, &vm); got != tt.want {
				t.Errorf("cause = %q, want %q", got, tt.want)
			}
		})
	}
}

func TestDeviceEnv(t *testing.T) {
	t.Setenv("SLURM_GTIDS", "2,3")
	reply := nodeagent.Reply{IVShmemSize: 1 << 20}
	tests := map[string]struct {
		o    Exec
		want int
	}{
		"without a claim":          {Exec{}, 0},
		"a task":                   {Exec{Claim: "0.5"}, 3},
		"mpirun: no word of ranks": {Exec{Claim: "0.5", Mpirun: true}, 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.o.deviceEnv(reply); len(got) != tt.want {
				t.Errorf("variables = %q, want %d", got, tt.want)
			}
		})
	}
}
