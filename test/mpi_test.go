//go:build cluster

package test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/internal/filetest"
)

// hello puts the example into u's home and returns the commands that build and run it
// with so many ranks.
func hello(t *testing.T, u user, ranks int) string {
	t.Helper()
	source, err := os.ReadFile("../examples/hello-mpi.c")
	if err != nil {
		t.Fatal(err)
	}
	u.writeFile(t, "~/hello-mpi.c", string(source))
	return fmt.Sprintf("mpicc -O2 -o hello-mpi ~/hello-mpi.c && slurm-v-run -n %d ./hello-mpi", ranks)
}

var rankLine = regexp.MustCompile(`(?m)^rank (\d) of (\d) runs in (vm\d) on node (n\d)$`)

// checkHello checks that so many ranks ran in four VMs on two nodes.
func checkHello(t *testing.T, out string, want int) {
	t.Helper()
	contains(t, out, fmt.Sprintf("the ranks add up to %d, which is right", want*(want-1)/2))
	ranks, vms, nodes := map[string]bool{}, map[string]bool{}, map[string]bool{}
	for _, m := range rankLine.FindAllStringSubmatch(out, -1) {
		ranks[m[1]+" of "+m[2]], vms[m[3]], nodes[m[4]] = true, true, true
	}
	if len(ranks) != want || len(vms) != 4 || len(nodes) != 2 {
		t.Errorf("%d ranks in %d VMs on %d nodes, want %d, 4, 2:\n%s", len(ranks), len(vms), len(nodes), want, out)
	}
}

const twoByTwo = "--nodes=2 --vm-per-node=2 --vcpu-per-vm=2 --memory-per-vm=384M --time=90"

func TestBatchJobOfTwoUsersAtOnce(t *testing.T) {
	t.Parallel()
	jobs := []*job{
		alice.submit(t, twoByTwo, hello(t, alice, 8)),
		bob.submit(t, twoByTwo, hello(t, bob, 8)),
	}
	for _, j := range jobs {
		checkHello(t, j.completes(), 8)
	}
}

func TestSalloc(t *testing.T) {
	t.Parallel()
	o := alice.run(t, "cd ~ && salloc "+twoByTwo+" bash -c '"+hello(t, alice, 8)+"; squeue -h -o %A --me >&2'")
	if o.code != 0 {
		t.Fatalf("exit status %d\n%s\n%s", o.code, o.stdout, o.stderr)
	}
	checkHello(t, o.stdout, 8)
	for _, id := range regexp.MustCompile(`Granted job allocation (\d+)`).FindAllStringSubmatch(o.stderr, -1) {
		checkLeaks(t, id[1])
	}
	if !strings.Contains(o.stderr, "ready in") {
		t.Errorf("no word about the VMs being ready:\n%s", o.stderr)
	}
}

// An MPI library that Slurm's PMI does not start makes a world of one of each rank, and every
// one would end well with a wrong result.
func TestWrongStart(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, small+" --vcpu-per-vm=2", `
until [ -e ready ]; do sleep 0.2; done
slurm-v-run -Q -n 2 ./program; echo "alone: $?"
slurm-v-run -Q -n 2 sh -c 'sleep 7; ./program "" 5; :'; echo "by a shell: $?"
slurm-v-run -Q -n 2 ./program asks; echo "asks: $?"
slurm-v-run -Q -n 2 --mpi=none ./program; echo "meant: $?"
slurm-v-run -Q -n 1 ./program; echo "one: $?"
slurm-v-run -Q -n 2 hostname; echo "no MPI: $?"
slurm-v-run -Q --list-mpi`)
	filetest.MPIProgram(t, j.dir, "libmpi.so.40")
	alice.must(t, "touch "+j.dir+"/ready")
	out := j.completes()
	contains(t, out, "alone: 1\n", "by a shell: 1\n", "asks: 0\n", "meant: 0\n", "one: 0\n", "no MPI: 0\n",
		"slurm-v: wrong start: the program uses libmpi.so.40", "MPICH 4", ": slurm-v-run -n N PROGRAM\n")
	if n := strings.Count(out, "wrong start"); n != 4 {
		t.Errorf("%d tasks say that they were started wrongly, want those of two runs:\n%s", n, out)
	}
}

// mpichScript ends runs of MPICH, through shared memory and by the network. Two devices: the runs that count and kill
// have one, too.
const mpichScript = runsEnd + `
mpicc -O2 -o world world.c || exit 1
start="slurm-v-run -Q"
say exit $start -n 2 ./world exit
say leave $start -n 2 ./world leave
say return $start -n 1 ./world return
say kill-a-rank ends rank "$killrank"
say kill-a-relay ends relay "$killrelay"
start="slurm-v-run -Q --mpi-shm=off"
say kill-a-rank-of-the-network ends network "$killrank"
start="slurm-v-run -Q"
say again $start -n 2 ./world
`

// Slurm's mpi/pmi2 does nothing when a rank dies, and the others would wait for it for ever.
func TestAKilledRankEndsItsRun(t *testing.T) {
	t.Parallel()
	said := parts(alice.submit(t, "--nodes=1 --vm-per-node=2 --vcpu-per-vm=2 --memory-per-vm=384M --ivshmem=2:16M --ntasks=4 --time=90", source(t, "world.c")+mpichScript).completes())

	contains(t, said["exit"], "Exited with exit code 5\n")
	contains(t, said["leave"], "slurm-v: the program has ended without MPI_Finalize", "Exited with exit code 1\n")
	contains(t, said["return"], "status 3\n")
	for _, name := range []string{"exit", "leave"} {
		if strings.Contains(said[name], "status 0\n") {
			t.Errorf("%s ends well:\n%s", name, said[name])
		}
	}
	for _, name := range []string{"kill-a-rank", "kill-a-relay", "kill-a-rank-of-the-network"} {
		checkEnd(t, name, said[name], "before: 2\n")
	}
	contains(t, said["again"], "rank 1 of 2 in vm1 is one of 2 from 0 on\n", "2 ranks add up to 1, 0 wrong\n", "status 0\n")
}
