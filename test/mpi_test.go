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

// Four VMs of two shapes: of both there are templates of alice's, of the second also of bob's.
const (
	twoByTwo = "--nodes=2 --vm-per-node=2 --time=90 " + twoCPUs
	slender  = "--nodes=2 --vm-per-node=2 --time=90 " + oneCPU
)

func TestBatchJobOfTwoUsersAtOnce(t *testing.T) {
	t.Parallel()
	ofAlice, ofBob := alice.submit(t, twoByTwo, hello(t, alice, 8)), bob.submit(t, slender, hello(t, bob, 4))
	checkHello(t, ofAlice.completes(), 8)
	checkHello(t, ofBob.completes(), 4)
}

func TestSalloc(t *testing.T) {
	t.Parallel()
	o := alice.run(t, "cd ~ && salloc "+slender+" bash -c '"+hello(t, alice, 4)+"; squeue -h -o %A --me >&2'")
	if o.code != 0 {
		t.Fatalf("exit status %d\n%s\n%s", o.code, o.stdout, o.stderr)
	}
	checkHello(t, o.stdout, 4)
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
slurm-v-run -Q -n 2 sh -c './program; :'; echo "for an instant: $?"
slurm-v-run -Q -n 2 ./program asks; echo "asks: $?"
slurm-v-run -Q -n 2 --mpi=none ./program; echo "meant: $?"
slurm-v-run -Q -n 1 ./program; echo "one: $?"
slurm-v-run -Q -n 2 hostname; echo "no MPI: $?"
slurm-v-run -Q --list-mpi`)
	filetest.MPIProgram(t, j.dir, "libmpi.so.40")
	alice.must(t, "touch "+j.dir+"/ready")
	out := j.completes()
	contains(t, out, "alone: 1\n", "by a shell: 1\n", "for an instant: 1\n", "asks: 0\n", "meant: 0\n", "one: 0\n", "no MPI: 0\n",
		"slurm-v: wrong start: the program uses libmpi.so.40", "MPICH 4", ": slurm-v-run -n N PROGRAM\n")
	if n := strings.Count(out, "wrong start"); n != 6 {
		t.Errorf("%d tasks say that they were started wrongly, want those of three runs:\n%s", n, out)
	}
}

// relayOf prints, in a script, the process of a relay of the job's own run of a program with these words.
const relayOf = `
relay_of() {
	for p in $(pgrep -u $(id -u) -f "^/[^ ]*/slurmv-relay .*$*"); do
		if grep -qzx "SLURM_JOB_ID=$SLURM_JOB_ID" /proc/$p/environ; then echo $p; return; fi
	done 2> /dev/null
}
`

// runsEnd is a part of scripts that end a run of world in different ways: $start is how it starts.
const runsEnd = relayOf + `
say() { echo "== $1"; shift; "$@" 2>&1; echo "status $?"; }
count() { slurm-v-run -Q -n 2 --mpi=none sh -c 'pgrep -x world; pgrep -x slurmv-pmix; :' | wc -l; }
step() { squeue -h -s -j $SLURM_JOB_ID -o '%i %j' | awk '$2 == "world" { print $1 }'; }
ends() {
	$start -n 2 ./world wait > $1.out 2>&1 & run=$!
	until [ "$(grep -c waits $1.out)" = 2 ]; do
		# A run that has ended says nothing more, and what follows would wait for its ranks for ever.
		kill -0 $run 2> /dev/null || { wait $run; echo "ended with $? before its ranks waited"; cat $1.out; exit 1; }
		sleep 0.2
	done
	echo "before: $(count)"
	eval "$2"
	wait $run; echo "ends with $?"; cat $1.out
	echo "left: $(count)"
}
killrank='slurm-v-run -Q -n 1 -N 1 --mpi=none pkill -9 -x world'
killserver='slurm-v-run -Q -n 1 -N 1 --mpi=none pkill -9 -x slurmv-pmix'
killrelay='kill -9 $(relay_of world wait)'
`

// mpichScript ends runs of MPICH, through shared memory and by the network. Two devices: the runs that count and kill
// have one, too.
const mpichScript = runsEnd + `
mpicc -O2 -o world world.c || exit 1
start="slurm-v-run -Q"
say exit $start -n 2 ./world exit
say leave $start -n 2 ./world leave
say return $start -n 1 ./world return
say early $start -n 2 sh -c '[ $SLURM_PROCID = 0 ] || exec ./world'
say late $start -n 2 sh -c '[ $SLURM_PROCID = 1 ] || exec ./world; sleep 15'
say missing $start -n 2 sh -c '[ $SLURM_PROCID = 0 ] || exec ./world; exec ./nothing' # --kill-on-bad-exit=1 comes with shared memory
say kill-a-rank ends rank "$killrank"
say kill-a-relay ends relay "$killrelay"
start="slurm-v-run -Q --mpi-shm=off"
say apart $start -n 2 sh -c '[ $SLURM_PROCID = 1 ] || exec ./world; exit 3'
say kill-a-rank-of-the-network ends network "$killrank"
start="slurm-v-run -Q"
say again $start -n 2 ./world
`

// Slurm's mpi/pmi2 does nothing when a rank dies, and the others would wait for it for ever.
func TestAKilledRankEndsItsRun(t *testing.T) {
	t.Parallel()
	said := parts(alice.submit(t, "--nodes=1 --vm-per-node=2 --ivshmem=2:16M --ntasks=4 --time=90 "+twoCPUs, source(t, "world.c")+mpichScript).completes())

	contains(t, said["exit"], "Exited with exit code 5\n")
	contains(t, said["leave"], "slurm-v: the program has ended without MPI_Finalize", "Exited with exit code 1\n")
	contains(t, said["return"], "status 3\n")
	contains(t, said["early"], absentTask(0))
	contains(t, said["late"], absentTask(1))
	contains(t, said["apart"], absentTask(1))
	for _, name := range []string{"exit", "leave", "early", "late", "missing", "apart"} {
		if strings.Contains(said[name], "status 0\n") {
			t.Errorf("%s ends well:\n%s", name, said[name])
		}
	}
	for _, name := range []string{"kill-a-rank", "kill-a-relay", "kill-a-rank-of-the-network"} {
		checkEnd(t, name, said[name], "before: 2\n")
	}
	last := map[string]string{"2": "is one of 2 from 0 on", "1": "is one of 1 from 1 on"}[neighboursOnANode(t)]
	contains(t, said["again"], "rank 1 of 2 in vm1 "+last+"\n", "2 ranks add up to 1, 0 wrong\n", "status 0\n")
}

// absentTask is how the line begins about a task that has ended without MPI_Init.
func absentTask(task int) string {
	return fmt.Sprintf("slurm-v: task %d on n", task)
}

// openMPIImage returns an image that has Open MPI.
func openMPIImage(t *testing.T) string {
	t.Helper()
	return output(t, "../scripts/guest-image", "--open-mpi", "--guest", clusterDir()+"/usr/libexec/slurm-v/slurmv-guest")
}

// checkEnd checks that the end of a run of world took all its processes with it, and was noticed.
func checkEnd(t *testing.T, name, out, before string) {
	t.Helper()
	contains(t, out, before, "left: 0\n")
	if strings.Contains(out, "ends with 0\n") {
		t.Errorf("%s ends well:\n%s", name, out)
	}
}

// parts are what a script has said, by the words of say.
func parts(out string) map[string]string {
	said := map[string]string{}
	for part := range strings.SplitSeq(out, "== ") {
		name, text, _ := strings.Cut(part, "\n")
		said[name] = text
	}
	return said
}
