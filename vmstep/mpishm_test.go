package vmstep

import (
	"os"
	"slices"
	"strings"
	"testing"
)

func TestMPIMemoryIsEnough(t *testing.T) {
	tests := map[string]struct {
		mib      int64
		ranks    int
		programs int64  // bytes left for them
		want     string // the error; "" if none
	}{
		"plenty":            {64, 4, 44 << 20, ""},
		"all of it":         {20, 4, 0, ""},
		"a little too much": {16, 4, 0, "the IVShmem device has 16 MiB, and MPI needs more for 4 ranks on a node: submit the job with --ivshmem=1:32M, or more if the program makes MPI windows"},
		"far too much":      {16, 128, 0, "--ivshmem=1:1024M"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := MPIMemory{Size: tt.mib << 20, Ranks: tt.ranks}
			err := m.Check(nil)
			if (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
			if err == nil && m.ForPrograms() != tt.programs {
				t.Errorf("%d bytes are left for programs, want %d", m.ForPrograms(), tt.programs)
			}
		})
	}
}

// What the user has set stays, and the user's own library is loaded, too.
func TestMPIMemoryEnv(t *testing.T) {
	m := MPIMemory{Job: "7 n1 1.5", Claim: 1, Size: 64 << 20, Ranks: 2, VM: 3}
	env := m.Env([]string{"UCX_TLS=tcp", "LD_PRELOAD=libmine.so", "UCX_MAX_EAGER_RAILS_X=7"})
	for _, want := range []string{"LD_PRELOAD=/run/slurm-v/lib/libslurmv-mpi.so:libmine.so", "UCX_MAX_EAGER_RAILS=1", "OMPI_MCA_sharedfp=^sm"} {
		if !slices.Contains(env, want) {
			t.Errorf("no %s in %q", want, env)
		}
	}
	if slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, "UCX_TLS=") }) {
		t.Errorf("the user's UCX_TLS is not the last: %q", env)
	}
	if slices.ContainsFunc(env, func(e string) bool { return strings.HasPrefix(e, "SLURMV_MPI_RANKS=") }) {
		t.Errorf("a program that does not use PMIx is told its neighbours: %q", env)
	}
	m.Neighbours = []int{2, 3, 10}
	if pmix := m.Env(nil); !slices.Contains(pmix, "SLURMV_MPI_RANKS=2,3,10") {
		t.Errorf("a program that uses PMIx is not told its neighbours: %q", pmix)
	}
	if want := "SLURMV_MPI_SHM=/dev/slurmv/ivshmem1:"; !strings.HasPrefix(env[0], want) || !strings.HasSuffix(env[0], ":3:55574528") {
		t.Errorf("%s, want %s…:3:55574528", env[0], want)
	}
}

// Users read in docs/mpi.md what is set for them.
func TestMPIMemoryVariablesAreDescribed(t *testing.T) {
	text, err := os.ReadFile("../docs/mpi.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range slices.Concat(ucx, openMPI) {
		if !strings.Contains(string(text), "`"+entry+"`") {
			t.Errorf("docs/mpi.md does not say `%s`", entry)
		}
	}
}

// All VMs of a run on a node tell MPI the same boot id, and no others do.
func TestMPIMemoryMachine(t *testing.T) {
	one := MPIMemory{Job: "7 n1 1.5", VM: 0}.machine()
	if two := (MPIMemory{Job: "7 n1 1.5", VM: 1}).machine(); two != one {
		t.Errorf("%s and %s", one, two)
	}
	for _, other := range []string{"8 n1 1.5", "7 n2 1.5", "7 n1 1.6"} {
		if (MPIMemory{Job: other}).machine() == one {
			t.Errorf("run %s has the machine of run 7 n1 1.5", other)
		}
	}
	if len(one) != 36 {
		t.Errorf("%q is no UUID", one)
	}
}
