//go:build cluster && soak

package test

import (
	"flag"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"
)

var (
	mpiStress = flag.Duration("mpi-stress", 10*time.Minute, "let the ranks of each MPI talk for so `long`")
	mpiKills  = flag.Int("mpi-kills", 200, "kill something of a run of MPI so `many` times")
)

// An mpi is an MPI library of the images: how its programs are built and started, and which image has it.
type mpi struct{ compiler, start, image string }

// mpis returns the libraries that talk through shared memory.
func mpis(t *testing.T) map[string]mpi {
	t.Helper()
	return map[string]mpi{
		"MPICH":    {"mpicc.mpich", "slurm-v-run --mpi-shm=on", ""},
		"Open MPI": {"mpicc.openmpi", "slurm-v-run --mpi=pmix --mpi-shm=on", " --vm-image=" + openMPIImage(t)},
	}
}

// submitStress submits a job of four VMs on two nodes that builds stress.c and runs the script. Its ranks start with $start.
// What looks into the VMs meanwhile has a shared-memory device of its own, and need not wait.
func (m mpi) submitStress(t *testing.T, script string) *job {
	t.Helper()
	options := "--nodes=2 --vm-per-node=2 --memory-per-vm=512M --ivshmem=2:64M --ntasks=4 --time=1440" + m.image
	return alice.submit(t, options, source(t, "stress.c")+m.compiler+" -O2 -Wno-stringop-overflow -o stress stress.c || exit 1\nstart='"+m.start+"'\n"+script)
}

var stressed = regexp.MustCompile(`[1-9][0-9]* rounds of 4 ranks, 0 wrong\n`)

// Random messages of all kinds arrive as they were sent.
func TestMPIStress(t *testing.T) {
	for name, m := range mpis(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := m.submitStress(t, fmt.Sprintf(`$start -n 4 ./stress %d $SLURM_JOB_ID; echo "status $?"`, int(mpiStress.Seconds()))).completes()
			t.Log(out)
			if !stressed.MatchString(out) || !strings.Contains(out, "status 0\n") {
				t.Error("bytes are wrong")
			}
		})
	}
}

// killsScript kills a rank, a relay, a PMIx server or srun at a random moment, until the run has ended. Then nothing of it is left
// in the VMs, and the next run is right.
const killsScript = relayOf + `
ways=(rank relay step srun)
case $start in *pmix*) ways+=(server) ;; esac
in_vm() { slurm-v-run -Q --mpi=none "$@"; }
strike() {
	case $1 in
	rank) in_vm -n 1 -N 1 pkill -9 -x stress ;;
	server) in_vm -n 1 -N 1 pkill -9 -x slurmv-pmix ;;
	relay) kill -9 $(relay_of stress 600) ;;
	step) scancel $(squeue -h -s -j $SLURM_JOB_ID -o '%i %j' | awk '$2 == "stress" { print $1 }') ;;
	srun) kill -9 $run ;;
	esac
}
left() { in_vm -n 4 sh -c 'pgrep -x stress; pgrep -x slurmv-pmix; :' | wc -l; }
for i in $(seq $kills); do
	$start -n 4 ./stress 600 $i > kill.out 2>&1 & run=$!
	way=${ways[RANDOM % ${#ways[@]}]}
	sleep $((RANDOM % 6)).$((RANDOM % 10))
	while kill -0 $run 2> /dev/null; do
		strike $way 2> /dev/null
		sleep 1
	done
	wait $run 2> /dev/null && { echo "kill $i ($way): the run ends well"; cat kill.out; }
	for try in $(seq 60); do
		n=$(left)
		[ "$n" != 0 ] || break
	done
	next=$($start -Q -n 4 ./stress 1 $i 2>&1)
	echo "kill $i ($way): $n left, then $next"
done
`

// Whatever of a run is killed, and whenever, the run ends, nothing is left of it, and the next run is right.
func TestMPIKills(t *testing.T) {
	right := regexp.MustCompile(`(?m)^kill [0-9]+ \([a-z]+\): 0 left, then [1-9][0-9]* rounds of 4 ranks, 0 wrong$`)
	for name, m := range mpis(t) {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			out := m.submitStress(t, fmt.Sprintf("kills=%d\n", *mpiKills)+killsScript).completes()
			t.Log(out)
			if n := len(right.FindAllString(out, -1)); n != *mpiKills || strings.Contains(out, "ends well") {
				t.Errorf("after %d of %d kills all was well", n, *mpiKills)
			}
		})
	}
}
