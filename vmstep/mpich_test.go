package vmstep

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/internal/filetest"
)

// A device of the size that the check before the start asks for has room for messages that no rank waits for yet. The ranks
// are processes of this machine that take each other for ranks in other VMs.
func TestMPIMemoryHasRoomForUnexpectedMessages(t *testing.T) {
	dir := t.TempDir()
	sources, _ := filepath.Glob("../ivshmem/mpi/*.[chm]*")
	library, program := filetest.Make(t, "..", dir, "libslurmv-mpi.so", sources...), filepath.Join(dir, "unexpected")
	const source = "testdata/unexpected.c"
	filetest.Build(t, []string{source}, []string{"mpicc.mpich", "-O1", "-o", program, source})
	m := MPIMemory{Ranks: 2}

	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	const vm = `export SLURMV_MPI_SHM=$0:5e1f5e1f-0000-4000-8000-000000000001:$PMI_RANK:0 LD_PRELOAD=$1; shift; exec "$@"`
	c := exec.CommandContext(ctx, "mpiexec.hydra", "-n", "2", "sh", "-c", vm, filetest.Device(t, m.need()), library, program, "700")
	c.Env = append(append(os.Environ(), m.Env(nil)...), "LD_PRELOAD=")
	c.WaitDelay = time.Second
	out, err := c.CombinedOutput()
	if want := "700 messages, 0 wrong\n"; err != nil || string(out) != want {
		t.Errorf("%v, and not %q but\n%s", err, want, out)
	}
}
