//go:build cluster

package test

import (
	"fmt"
	"strings"
	"testing"
)

// The one that starts the VMs can be killed at any stage: the keeper it started
// is a process of its own, and others who wait are served.
func TestFirstRunKilledWhileAnotherWaits(t *testing.T) {
	t.Parallel()
	tests := map[string]string{
		"at image": "seen image first.err",
		"at start": "seen start first.err",
		"at boot":  "seen boot first.err",
		// Held back, or it would be srun by then.
		"at ready": "seen boot first.err; kill -STOP $first; seen ready second.err",
	}
	for name, until := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			j := alice.submit(t, small+cold, fmt.Sprintf(`
seen() { until grep -q "vm0: $1" $2; do sleep 0.05; done; }
slurm-v-run echo first 2> first.err &
first=$!
slurm-v-run echo second 2> second.err &
second=$!
%s
kill -9 $first
wait $second; echo "second: $?"
slurm-v-run -Q echo third
`, until))
			out := j.completes()
			contains(t, out, "second\n", "second: 0\n", "third\n")
			if strings.Contains(out, "first\n") {
				t.Error("the killed run has run its program")
			}
		})
	}
}

func TestConcurrentRunsStartTheVMsOnce(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, small, `for i in 1 2 3 4 5; do slurm-v-run echo run $i & done; wait
echo "VM steps: $(sacct -n -j $SLURM_JOB_ID --format=JobName%20 | grep -c slurm-v)"`)
	out := j.completes()
	for i := range 5 {
		contains(t, out, fmt.Sprintf("run %d\n", i+1))
	}
	contains(t, out, "VM steps: 1")
}

func TestRelayKilledLeavesNoProcessInItsVM(t *testing.T) {
	t.Parallel()
	const script = relayOf + `
slurm-v-run sh -c 'setsid sleep 4321 & echo running; sleep 4321' &
until grep -q running out; do sleep 0.3; done
run=$!
echo "before: $(slurm-v-run -Q sh -c 'pgrep -x sleep | wc -l')"
kill -9 $(relay_of sleep 4321)
wait $run; echo "status: $?"
left=
for i in $(seq 20); do
	left=$(slurm-v-run -Q sh -c 'pgrep -x sleep | wc -l')
	[ "$left" = 0 ] && break
	sleep 1
done
echo "left: $left"
`
	contains(t, alice.submit(t, small, script).completes(), "before: 2\n", "left: 0\n")
}

func TestSignalOfTheWholeJobKillsNoVM(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, small, `
trap : USR1
slurm-v-run bash -c 'trap "echo program got USR1; exit 0" USR1; echo running; `+rest+`' &
wait $!; wait $!
slurm-v-run echo the VMs are alive`)
	j.awaitOutput("running")
	alice.must(t, "scancel -s USR1 "+j.id)
	contains(t, j.completes(), "program got USR1", "the VMs are alive")
}

// --signal of sbatch goes to every step: the programs, and the VM step, which does
// not mind. Slurm may send it a minute early, so the limit is lowered to that minute
// only when there is somebody to hear it.
func TestSignalBeforeTheTimeLimit(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, small+" --time=90 --signal=USR1@240", `
slurm-v-run bash -c 'trap "echo program got USR1; exit 0" USR1; touch /tmp/here; echo running; `+rest+`'
slurm-v-run sh -c '[ -e /tmp/here ] && echo the VM is the same'`)
	j.awaitOutput("running")
	alice.must(t, "scontrol update jobid="+j.id+" timelimit=5")
	contains(t, j.completes(), "program got USR1", "the VM is the same")
}

func TestArray(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, small+" --array=1-4", `
slurm-v-run -Q sh -c 'echo task $SLURM_ARRAY_TASK_ID in $(hostname)' > task.$SLURM_ARRAY_TASK_ID
slurmv ps $SLURM_JOB_ID > ps.$SLURM_ARRAY_TASK_ID 2>&1`)
	alice.must(t, "while squeue -h -j "+j.id+" -o %A 2>/dev/null | grep -q .; do sleep 1; done")
	for i := 1; i <= 4; i++ {
		if got, want := j.file(fmt.Sprintf("task.%d", i)), fmt.Sprintf("task %d in vm0", i); got != want {
			t.Errorf("array task %d prints %q, want %q", i, got, want)
		}
		// Some tasks have no VM yet; the last has the array's number.
		contains(t, j.file(fmt.Sprintf("ps.%d", i)), fmt.Sprintf("%s_%d ", j.id, i), "vm0")
	}
}

func TestRequeue(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, small+" --requeue", `
slurm-v-run -Q sh -c 'echo try $SLURM_RESTART_COUNT' 2>&1
[ -n "$SLURM_RESTART_COUNT" ] || { echo requeue me; sleep 1000; }`)
	j.awaitOutput("requeue me")
	alice.must(t, "scontrol requeue "+j.id)
	j.awaitOutput("try 1")
	j.await("COMPLETED")
}
