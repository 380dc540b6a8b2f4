//go:build cluster

package test

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// openMPIScript is what a user does with Debian's Open MPI, right and wrong, in the VMs of one job.
const openMPIScript = `
mpicc.openmpi -O2 -o world ~/world.c && cc -static -o static -xc - <<< 'int puts(const char *); int main(void) { puts("static"); }' || exit 1
say() { echo "== $1"; shift; "$@" 2>&1; echo "status $?"; }
pmix="slurm-v-run -Q --mpi=pmix"
say list slurm-v-run -Q --list-mpi
say world $pmix -n 8 ./world
OMPI_MCA_btl=vader,self say neighbours $pmix -n 8 ./world neighbours
say ssh slurm-v-run -Q --launcher=ssh mpirun --map-by node -n 2 ./world
say return $pmix -n 1 ./world return
say exit $pmix -n 2 ./world exit
say leave $pmix -n 2 ./world leave
say abort $pmix -n 2 ./world abort
say spawn $pmix -n 2 ./world spawn
say static $pmix -n 2 ./static
say no-pmix slurm-v-run -Q -n 2 ./static
say wrong slurm-v-run -Q -n 2 ./world
SLURMV_LIBPMIX=/nowhere.so say library $pmix -n 2 ./world

relay() {
	for p in $(pgrep -u $(id -u) -f '^/[^ ]*/slurmv-agent exec .*world wait'); do
		if grep -qzx "SLURM_JOB_ID=$SLURM_JOB_ID" /proc/$p/environ; then echo $p; return; fi
	done
}
count() { slurm-v-run -Q -n 2 --mpi=none sh -c 'pgrep -x world; pgrep -x slurmv-pmix; :' | wc -l; }
step() { squeue -h -s -j $SLURM_JOB_ID -o '%i %j' | awk '$2 == "world" { print $1 }'; }
ends() {
	$pmix -n 2 ./world wait > $1.out 2>&1 & run=$!
	until [ $(grep -c waits $1.out) = 2 ]; do sleep 0.2; done
	echo "before: $(count)"
	eval "$2"
	wait $run; echo "ends with $?"; cat $1.out
	echo "left: $(count)"
}
say kill-a-rank ends rank "slurm-v-run -Q -n 1 -N 1 --mpi=none pkill -9 -x world"
say kill-a-server ends server "slurm-v-run -Q -n 1 -N 1 --mpi=none pkill -9 -x slurmv-pmix"
say kill-a-relay ends relay 'kill -9 $(relay)'
say scancel ends scancel 'scancel $(step)'
say term ends term 'scancel -s TERM $(step)'
say again $pmix -n 2 ./world
`

// TestOpenMPI runs Debian's Open MPI in four VMs on two nodes.
func TestOpenMPI(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("testdata/world.c")
	if err != nil {
		t.Fatal(err)
	}
	alice.writeFile(t, "~/world.c", string(source))
	image := output(t, "../scripts/guest-image", "--open-mpi", "--guest", clusterDir()+"/usr/libexec/slurm-v/slurmv-guest")
	out := alice.submit(t, twoByTwo+" --vm-image="+image, openMPIScript).completes()

	said := map[string]string{}
	for part := range strings.SplitSeq(out, "== ") {
		name, text, _ := strings.Cut(part, "\n")
		said[name] = text
	}
	const sentence = "Open MPI starts with: slurm-v-run --mpi=pmix …\n"
	for name, want := range map[string][]string{
		"list":    {"Open MPI v4.1", ": slurm-v-run --mpi=pmix -n N PROGRAM\n"},
		"return":  {"status 3\n"},
		"exit":    {"Exited with exit code 5\n"},
		"leave":   {"slurm-v: the program has ended without MPI_Finalize", "Exited with exit code 1\n"},
		"abort":   {"MPI_ABORT was invoked on rank 1", "with errorcode 6"},
		"spawn":   {"slurm-v: MPI cannot spawn processes in VMs"},
		"static":  {"static\nstatic\nstatus 0\n"},
		"no-pmix": {"static\nstatic\nstatus 0\n"},
		"wrong":   {"slurm-v: wrong start: the program uses libmpi.so.40, which does not ask Slurm's PMI. " + sentence, "status 1\n"},
		"library": {"slurm-v: --mpi=pmix: cannot use the image's PMIx library (/nowhere.so: "},
	} {
		contains(t, said[name], want...)
	}
	checkWorld(t, said["world"], 8, 2)
	checkWorld(t, said["ssh"], 2, 1)
	if n := strings.Count(said["neighbours"], "2 ranks add up to 1, 0 wrong\n"); n != 4 || !strings.Contains(said["neighbours"], "status 0\n") {
		t.Errorf("the ranks of %d VMs talk through shared memory, want 4:\n%s", n, said["neighbours"])
	}
	checkWorld(t, said["again"], 2, 1)
	// The status is the failed rank's or that of one which was ended because of it.
	for _, name := range []string{"exit", "leave", "abort", "spawn", "library"} {
		if strings.Contains(said[name], "status 0\n") {
			t.Errorf("%s ends well:\n%s", name, said[name])
		}
	}
	contains(t, said["kill-a-server"], "slurm-v: --mpi=pmix: the PMIx server of this VM has ended (signal: killed)")
	for _, name := range []string{"kill-a-rank", "kill-a-server", "kill-a-relay", "scancel", "term"} {
		contains(t, said[name], "before: 4\n", "left: 0\n")
		if strings.Contains(said[name], "ends with 0\n") {
			t.Errorf("%s ends well:\n%s", name, said[name])
		}
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
