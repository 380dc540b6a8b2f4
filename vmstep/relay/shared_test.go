package relay

import (
	"errors"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/internal/pmi"
)

// One task of each node says what MPI does with the memory, if the program uses MPI at all.
func TestWhatMPIDoesWithSharedMemory(t *testing.T) {
	const (
		network = "slurm-v: MPI talked between the 2 VMs of n1 by the network, not through shared memory: "
		must    = "--mpi-shm=on: MPI does not talk through shared memory between the 2 VMs of n1: "
		static  = "the program is static or not linked with glibc, so Slurm-V cannot help it"
		foreign = "its transport is none that Slurm-V knows"
		hello   = "cmd=init pmi_version=1\n"
		ready   = "cmd=slurmv-shm ready=1\n"
		peer    = "cmd=slurmv-shm peer=UCX\n"
		joined  = "cmd=slurmv-pmix joined=1\n"
		vader   = "cmd=slurmv-shm peer=Open_MPI\n"
	)
	tests := map[string]struct {
		shared *SharedMemory
		must   bool
		says   []string // the program, to PMI
		want   string
		fails  string // why the run must fail
	}{
		"it talks through it":                 {&SharedMemory{Speaks: true}, false, []string{ready, hello, peer}, "slurm-v: MPI talks through shared memory between the 2 VMs of n1 (UCX)\n", ""},
		"it talks through it, quietly":        {&SharedMemory{Speaks: true, Quiet: true}, false, []string{ready, hello, peer}, "", ""},
		"another task says it":                {&SharedMemory{}, false, []string{ready, hello, peer}, "", ""},
		"another transport":                   {&SharedMemory{Speaks: true}, false, []string{ready, hello}, network + foreign + "\n", ""},
		"another transport, quietly":          {&SharedMemory{Speaks: true, Quiet: true}, false, []string{ready, hello}, "", ""},
		"a static program":                    {&SharedMemory{Speaks: true}, false, []string{hello}, network + static + "\n", ""},
		"too little memory":                   {&SharedMemory{Speaks: true, Refuse: errors.New("it is too small")}, false, []string{hello}, network + "it is too small\n", ""},
		"no MPI":                              {&SharedMemory{Speaks: true}, false, nil, "", ""},
		"no memory to be used":                {nil, false, []string{hello}, "", ""},
		"it must and does":                    {&SharedMemory{Speaks: true, Quiet: true}, true, []string{ready, hello, peer}, "", ""},
		"it must, another transport":          {&SharedMemory{Speaks: true, Quiet: true}, true, []string{ready, hello}, "", must + foreign},
		"it must, another task says it":       {&SharedMemory{}, true, []string{ready, hello}, "", ""},
		"it must, a static program":           {&SharedMemory{}, true, []string{hello}, "", must + static},
		"it must, and the program has no MPI": {&SharedMemory{Speaks: true}, true, nil, "", ""},
		"by PMIx":                             {&SharedMemory{Speaks: true}, true, []string{hello, ready, joined, vader}, "slurm-v: MPI talks through shared memory between the 2 VMs of n1 (Open MPI)\n", ""},
		"by PMIx, a static program":           {&SharedMemory{Speaks: true}, false, []string{hello, joined}, network + static + "\n", ""},
		"by PMIx, it must, a static program":  {&SharedMemory{}, true, []string{hello, joined}, "", must + static},
		"by PMIx, and the program has no MPI": {&SharedMemory{Speaks: true}, true, []string{hello}, "", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var words strings.Builder
			task := &Task{Stderr: &words, Shared: tt.shared, PMIx: strings.HasPrefix(name, "by PMIx")}
			task.Rank = pmi.Layout{Ranks: 2, VMsPerNode: 2, Member: &task.member, PMIx: task.PMIx}
			if tt.shared != nil {
				tt.shared.Node, tt.shared.VMs, tt.shared.PMI.Must = "n1", 2, tt.must
			}
			task.listen()
			toServer := &strings.Builder{}
			_ = pmi.Relay(&oneWay{&silence{}, toServer}, &oneWay{strings.NewReader(strings.Join(tt.says, "")), &strings.Builder{}}, task.Rank)
			task.regret()
			if got := words.String(); got != tt.want {
				t.Errorf("it says %q, want %q", got, tt.want)
			}
			if got := task.disappointment(); got != tt.fails {
				t.Errorf("it must fail for %q, want %q", got, tt.fails)
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
