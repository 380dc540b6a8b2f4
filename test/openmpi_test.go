//go:build cluster

package test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// openMPIScript is what a user does with Debian's Open MPI, right and wrong, in the VMs of one job.
const openMPIScript = runsEnd + `
mpicc.openmpi -O2 -o world world.c && cc -static -o static -xc - <<< 'int puts(const char *); int main(void) { puts("static"); }' || exit 1
start="slurm-v-run -Q --mpi=pmix"
say list slurm-v-run -Q --list-mpi
say world $start -n 8 ./world
OMPI_MCA_btl=vader,self say neighbours $start -n 8 ./world neighbours
say variable env SLURM_MPI_TYPE=pmix_v4 slurm-v-run -Q -n 2 ./world
say ssh slurm-v-run -Q --launcher=ssh mpirun --map-by node -n 2 ./world
say return $start -n 1 ./world return
say exit $start -n 2 ./world exit
say leave $start -n 2 ./world leave
say abort $start -n 2 ./world abort
say neighbour-absent $start -n 2 -N 1 sh -c '[ $SLURM_PROCID = 0 ] || exec ./world'
say absent $start -n 4 sh -c '[ $SLURM_PROCID = 3 ] || exec ./world'
say spawn $start -n 2 ./world spawn
say static $start -n 2 ./static
say no-pmix slurm-v-run -Q -n 2 ./static
say wrong slurm-v-run -Q -n 2 ./world
SLURMV_LIBPMIX=/nowhere.so say library $start -n 2 ./world
say kill-a-rank ends rank "$killrank"
say kill-a-server ends server "$killserver"
say kill-a-relay ends relay "$killrelay"
say scancel ends scancel 'scancel $(step)'
say term ends term 'scancel -s TERM $(step)'
say again $start -n 2 ./world
say files slurm-v-run -Q -n 4 --mpi=none sh -c 'ls /dev/shm | sed s/^/left:/'
`

// TestOpenMPI runs Debian's Open MPI in four VMs on two nodes. It takes minutes, so `make test-mpi` has it, and
// `make test` has the tests of internal/pmix and ivshmem/mpi instead, with the same libraries and no VMs. No other
// scenario runs beside it: ranks that wait compute all the time, and eight of them take two cores from all other VMs.
// Beside other scenarios it needed four times the CPU time and made connections in their VMs time out.
func TestOpenMPI(t *testing.T) {
	out := alice.submit(t, twoByTwo+" --vm-image="+openMPIImage(t), source(t, "world.c")+openMPIScript).completes()

	said := parts(out)
	// Open MPI 4 refuses to compute alone, and 5 does so; the last line is Slurm-V's.
	version := regexp.MustCompile(`(?m)^Open MPI v([4-9])\.[0-9.a-z]+: slurm-v-run --mpi=pmix -n N PROGRAM$`).FindStringSubmatch(said["list"])
	if version == nil {
		t.Fatalf("the image's Open MPI is not in the list:\n%s", said["list"])
	}
	wrong := map[bool]string{true: "which does not ask Slurm's PMI. ", false: "which has not asked Slurm's PMI for the other ranks: each of the 2 tasks computes alone. "}[version[1] == "4"]
	for name, want := range map[string][]string{
		"return":  {"status 3\n"},
		"exit":    {"Exited with exit code 5\n"},
		"leave":   {"slurm-v: the program has ended without MPI_Finalize", "Exited with exit code 1\n"},
		"abort":   {"MPI_ABORT was invoked on rank 1"},
		"spawn":   {"slurm-v: MPI cannot spawn processes in VMs"},
		"static":  {"static\nstatic\nstatus 0\n"},
		"no-pmix": {"static\nstatic\nstatus 0\n"},
		"wrong":   {"slurm-v: wrong start: the program uses libmpi.so.40, " + wrong + "Open MPI starts with: slurm-v-run --mpi=pmix …", "status 1\n"},
		"library": {"slurm-v: --mpi=pmix: cannot use the image's PMIx library (/nowhere.so: "},
	} {
		contains(t, said[name], want...)
	}
	contains(t, said["neighbour-absent"], absentTask(0))
	contains(t, said["absent"], absentTask(3))
	checkWorld(t, said["world"], 8, 2)
	checkWorld(t, said["variable"], 2, 1)
	checkWorld(t, said["ssh"], 2, 1)
	if n := strings.Count(said["neighbours"], "2 ranks add up to 1, 0 wrong\n"); n != 4 || !strings.Contains(said["neighbours"], "status 0\n") {
		t.Errorf("the ranks of %d VMs talk through shared memory, want 4:\n%s", n, said["neighbours"])
	}
	checkWorld(t, said["again"], 2, 1)
	// The status is the failed rank's or that of one which was ended because of it.
	for _, name := range []string{"exit", "leave", "abort", "neighbour-absent", "absent", "spawn", "library"} {
		if strings.Contains(said[name], "status 0\n") {
			t.Errorf("%s ends well:\n%s", name, said[name])
		}
	}
	contains(t, said["kill-a-server"], "slurm-v: --mpi=pmix: the PMIx server of this VM has ended (signal: killed)")
	for _, name := range []string{"kill-a-rank", "kill-a-server", "kill-a-relay", "scancel", "term"} {
		checkEnd(t, name, said[name], "before: 4\n")
	}
	if strings.Contains(said["files"], "left:vader") || strings.Contains(said["files"], "left:sm_") {
		t.Errorf("files of killed ranks are left:\n%s", said["files"])
	}
}

var worldLine = regexp.MustCompile(`(?m)^rank (\d) of \d in (vm\d) is one of (\d) from (\d) on$`)

// checkWorld checks that so many ranks were one world, in which those of a VM, so many, are neighbours.
func checkWorld(t *testing.T, out string, ranks, neighbours int) {
	t.Helper()
	contains(t, out, fmt.Sprintf("%d ranks add up to %d, 0 wrong\n", ranks, ranks*(ranks-1)/2), "status 0\n")
	found, groups := map[string]bool{}, map[string]bool{}
	for _, m := range worldLine.FindAllStringSubmatch(out, -1) {
		found[m[1]], groups[m[2]+" "+m[4]] = true, true
		if m[3] != strconv.Itoa(neighbours) {
			t.Errorf("rank %s is one of %s neighbours, want %d", m[1], m[3], neighbours)
		}
	}
	if len(found) != ranks || len(groups) != ranks/neighbours {
		t.Errorf("%d ranks in %d VMs, want %d in %d:\n%s", len(found), len(groups), ranks, ranks/neighbours, out)
	}
}

// An unmodified Open MPI talks through shared memory as MPICH does. Its windows reach the ranks of a node only.
func TestOpenMPIThroughSharedMemory(t *testing.T) {
	t.Parallel()
	out := alice.submit(t, twoByTwo+" --ivshmem=1:16M --ntasks-per-node=2 --vm-image="+openMPIImage(t), exchange(t, "mpicc.openmpi")+`
start="slurm-v-run --mpi=pmix"
$start --mpi-shm=on ./exchange messages; echo "status $?"
echo == window
$start -n 2 -N 1 --mpi-shm=on sh -c './exchange; ls /dev/shm'; echo "status $?"
echo == by the user
OMPI_MCA_btl=tcp,self $start -n 2 -N 1 ./exchange messages
echo == UCX
OMPI_MCA_pml=ucx OMPI_MCA_opal_common_ucx_tls=any OMPI_MCA_opal_common_ucx_devices=any $start --mpi-shm=on ./exchange messages; echo "status $?"`).completes()

	parts := strings.Split(out, "== ")
	contains(t, parts[0], throughMemory+"n1 (Open MPI)", throughMemory+"n2 (Open MPI)", "4 ranks, 2 of them neighbours, 0 wrong", "status 0\n")
	contains(t, parts[1], throughMemory, " (Open MPI)\n", "2 ranks, 2 of them neighbours, 0 wrong", "status 0\n")
	contains(t, parts[2], "2 ranks, 2 of them neighbours, 0 wrong", "slurm-v: MPI talked between the 2 VMs of ", " by the network, not through shared memory: its transport is none that Slurm-V knows")
	contains(t, parts[3], throughMemory+"n1 (UCX)", throughMemory+"n2 (UCX)", "4 ranks, 2 of them neighbours, 0 wrong", "status 0\n")
	if strings.Contains(out, "vader_segment") || strings.Contains(out, "sm_segment") {
		t.Errorf("files of Open MPI's in a VM's own /dev/shm:\n%s", out)
	}
}
