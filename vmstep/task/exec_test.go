package task

import (
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/environ"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/vmstep"
	"github.com/slurm-v/slurm-v/vmstep/relay"
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
			if got := tt.o.deviceEnv(1 << 20); len(got) != tt.want {
				t.Errorf("variables = %q, want %d", got, tt.want)
			}
		})
	}
}

// A program maps as much of the device as it is told, so it is told what MPI leaves it.
func TestDeviceSizeIsWhatMPILeaves(t *testing.T) {
	const whole = 16 << 20
	tests := map[string]struct {
		e      Exec
		shared bool // MPI gets the rest
		size   int64
		env    []string
	}{
		"MPI has the memory":              {Exec{Claim: "0.5"}, true, whole, nil},
		"MPI is to leave it":              {Exec{Claim: "0.5", MPIShared: vmstep.MPISharedOff}, false, whole, nil},
		"the device is too small":         {Exec{Claim: "0.5"}, false, 1 << 20, nil},
		"UCX might use System V's memory": {Exec{Claim: "0.5"}, false, whole, []string{"UCX_TLS=sm"}},
	}
	for name, value := range map[string]string{
		"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2", "SLURM_LOCALID": "1", "SLURM_NODEID": "0", "SLURM_STEP_TASKS_PER_NODE": "2",
	} {
		t.Setenv(name, value)
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			reply := nodeagent.Reply{IVShmemSize: tt.size, VM: &nodeagent.VM{}, Node: &nodeagent.NodeVMs{VMs: make([]nodeagent.VM, 2)}}
			c := guest.Command{Env: tt.env}
			if err := tt.e.giveMemory(&relay.Task{PMI: &os.File{}}, &c, reply); err != nil {
				t.Fatal(err)
			}
			want := strconv.FormatInt(tt.size, 10)
			if parts := strings.Split(valueOf(c.Env, "SLURMV_MPI_SHM"), ":"); tt.shared {
				want = parts[len(parts)-1]
			}
			if got := valueOf(c.Env, "SLURMV_IVSHMEM_SIZE"); got != want || environ.Has(c.Env, "SLURMV_MPI_SHM") != tt.shared {
				t.Errorf("the program is told of %q bytes, want %s: %q", got, want, c.Env)
			}
		})
	}
}

// What the user demands and cannot have is refused, with the reason. What is on by itself is left out silently.
func TestNobodyToShareMemoryWith(t *testing.T) {
	tests := map[string]struct {
		vms   int
		tasks string // on each node
		want  string // the error with --mpi-shm=on
	}{
		"one VM on each node":   {1, "2(x2)", "--mpi-shm=on: there is nothing to share between VMs: each node of this job has one VM. Submit it with --vm-per-node=2 or more, or leave out --mpi-shm=on"},
		"one rank on each node": {2, "1(x2)", "--mpi-shm=on: there is nothing to share between VMs: this run has one rank on each node. Start more, or leave out --mpi-shm=on"},
		"two ranks on a node":   {2, "1,2", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SLURM_STEP_TASKS_PER_NODE", tt.tasks)
			reply := nodeagent.Reply{IVShmemSize: 64 << 20, VM: &nodeagent.VM{}, Node: &nodeagent.NodeVMs{VMs: make([]nodeagent.VM, tt.vms)}}
			for shared, want := range map[string]string{vmstep.MPISharedOn: tt.want, vmstep.MPISharedAuto: ""} {
				memory, _, err := Exec{Claim: "0.5", MPIShared: shared}.mpiMemory(reply, true, nil)
				if text := errorText(err); text != want || (memory != nil) != (tt.want == "") {
					t.Errorf("--mpi-shm=%s: memory %v, error %q, want %q", shared, memory, text, want)
				}
			}
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// valueOf is all values of a variable.
func valueOf(env []string, name string) (values string) {
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, name+"="); ok {
			values += value
		}
	}
	return values
}
