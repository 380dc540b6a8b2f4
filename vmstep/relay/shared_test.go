package relay

import (
	"errors"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/internal/pmi"
)

// One task of each node says what MPI does with the memory, if the program uses MPI at all.
func TestWhatMPIDoesWithSharedMemory(t *testing.T) {
	const network = "slurm-v: MPI talked between the 2 VMs of n1 by the network, not through shared memory: "
	server, ready := "cmd=init pmi_version=1\n", "cmd=slurmv-shm ready=1\n"
	tests := map[string]struct {
		shared *SharedMemory
		says   []string // the program, to PMI
		want   string
	}{
		"it talks through it":  {&SharedMemory{Speaks: true}, []string{ready, server, "cmd=slurmv-shm peer=UCX\n"}, "slurm-v: MPI talks through shared memory between the 2 VMs of n1 (UCX)\n"},
		"another task says it": {&SharedMemory{}, []string{ready, server, "cmd=slurmv-shm peer=UCX\n"}, ""},
		"another transport":    {&SharedMemory{Speaks: true}, []string{ready, server}, network + "its transport is none that Slurm-V knows\n"},
		"a static program":     {&SharedMemory{Speaks: true}, []string{server}, network + "the program is static or not linked with glibc, so Slurm-V cannot help it\n"},
		"too little memory":    {&SharedMemory{Speaks: true, Refuse: errors.New("it is too small")}, []string{server}, network + "it is too small\n"},
		"no MPI":               {&SharedMemory{Speaks: true}, nil, ""},
		"no memory to be used": {nil, []string{server}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var words strings.Builder
			task := &Task{Stderr: &words, Shared: tt.shared, Rank: pmi.Layout{Ranks: 2, VMsPerNode: 2}}
			if tt.shared != nil {
				tt.shared.Node, tt.shared.VMs = "n1", 2
			}
			task.listen()
			toServer := &strings.Builder{}
			_ = pmi.Relay(&oneWay{&silence{}, toServer}, &oneWay{strings.NewReader(strings.Join(tt.says, "")), &strings.Builder{}}, task.Rank)
			task.regret(toServer.Len() > 0)
			if got := words.String(); got != tt.want {
				t.Errorf("it says %q, want %q", got, tt.want)
			}
			if strings.Contains(toServer.String(), "slurmv") {
				t.Errorf("slurmstepd gets %q", toServer)
			}
		})
	}
}

type oneWay struct {
	r interface{ Read([]byte) (int, error) }
	w *strings.Builder
}

func (o *oneWay) Read(p []byte) (int, error)  { return o.r.Read(p) }
func (o *oneWay) Write(p []byte) (int, error) { return o.w.Write(p) }

// silence is a server that never answers.
type silence struct{}

func (*silence) Read([]byte) (int, error) { select {} }
