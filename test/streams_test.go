//go:build cluster

package test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// What srun does for a program on a bare node, slurm-v-run does for one in VMs.
// The comparisons are made in one job, against srun itself.
const streamsScript = `
run() { slurm-v-run -Q "$@"; }
bare() { srun --overlap -n4 "$@"; }

run -n 4 sh -c 'exit 3';  echo "exit: $?"
signalled='if [ $SLURM_PROCID = 2 ]; then kill -SEGV $$; fi; sleep 2'
run  -n 4 sh -c "$signalled"; echo "signal: $?"
bare sh -c "$signalled";      echo "bare signal: $?"
run  -n 4 ./no-such-program;  echo "missing: $?"
bare ./no-such-program;       echo "bare missing: $?"

run --label -n 4 sh -c 'echo hello from $SLURM_PROCID' | sort > label.out

head -c 1000000 /dev/urandom > input
run -n 4 sh -c 'if [ $SLURM_PROCID = 0 ]; then md5sum; fi' < input > stdin.out
md5sum < input > stdin.want

run -n 4 sh -c 'head -c 25000000 /dev/zero' | wc -c > volume.out

run -n 2 sh -c 'echo out; echo err >&2' > split.out 2> split.err
run -n 1 sh -c 'pwd; id -u; id -un; umask; echo "$GREETING"' > place.out
(umask 027; GREETING='two words' run -n 1 sh -c 'pwd; id -u; id -un; umask; echo "$GREETING"') > place.out
(umask 027; GREETING='two words' srun --overlap -n1 sh -c 'pwd; id -u; id -un; umask; echo "$GREETING"') > place.want
`

func TestStreamsBehaveAsWithSrun(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, "--nodes=1 --vm-per-node=2 --time=90 "+twoCPUs, streamsScript)
	out := j.completes()
	contains(t, out, "exit: 3\n")
	same(t, out, "signal", "bare signal")
	same(t, out, "missing", "bare missing")
	if got, want := j.file("label.out"), "0: hello from 0\n1: hello from 1\n2: hello from 2\n3: hello from 3"; got != want {
		t.Errorf("--label prints\n%s\nwant\n%s", got, want)
	}
	if got, want := j.file("stdin.out"), j.file("stdin.want"); got != want {
		t.Errorf("1 MB of standard input has the sum %s, want %s", got, want)
	}
	if got := j.file("volume.out"); got != "100000000" {
		t.Errorf("%s bytes of 100000000 arrived", got)
	}
	if out, err := j.file("split.out"), j.file("split.err"); out != "out\nout" || err != "err\nerr" {
		t.Errorf("stdout is %q, stderr is %q", out, err)
	}
	if got, want := j.file("place.out"), j.file("place.want"); got != want {
		t.Errorf("a program in a VM finds\n%s\non the bare node\n%s", got, want)
	}
}

// same checks that two lines "name: value" of out have the same value.
func same(t *testing.T, out, a, b string) {
	t.Helper()
	if x, y := value(out, a), value(out, b); x != y || x == "" {
		t.Errorf("%s is %q but %s is %q", a, x, b, y)
	}
}

func value(out, name string) string {
	found := regexp.MustCompile(`(?m)^` + regexp.QuoteMeta(name) + `: (.*)$`).FindStringSubmatch(out)
	if found == nil {
		return ""
	}
	return found[1]
}

const signalScript = `
slurm-v-run --start
slurm-v-run -Q -n 2 bash -c 'trap "echo $SLURM_PROCID got TERM; exit 0" TERM
trap "echo $SLURM_PROCID got USR1" USR1
echo $SLURM_PROCID started; ` + rest + `' > signals.out &
wait $!
echo "status: $?"
slurm-v-run -n 1 echo the VMs are alive
`

// sent is how often Slurm has sent a signal to a step on n1: scancel may do so twice.
func sent(t *testing.T, signal, step string) int {
	t.Helper()
	log, err := os.ReadFile(clusterDir() + "/log/slurmd-n1.log")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Count(string(log), "Sent signal "+signal+" to StepId="+step+"\n")
}

func TestSignalsReachThePrograms(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, small+" --nodelist=n1 --vcpu-per-vm=2", signalScript)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("signals.out:\n%s", j.file("signals.out"))
		}
	})
	j.eventually("starts the program", func() bool {
		out := j.read("signals.out")
		return strings.Contains(out, "0 started") && strings.Contains(out, "1 started")
	})
	steps := strings.Fields(alice.must(t, "squeue -h -s -j "+j.id+" -o '%i %j' | awk '$2 == \"bash\" {print $1}'"))
	if len(steps) != 1 {
		t.Fatalf("steps of the program: %q\n%s", steps, alice.must(t, "squeue -s"))
	}
	alice.must(t, "scancel -s USR1 "+steps[0])
	j.eventually("hands on USR1", func() bool {
		out := j.read("signals.out")
		return strings.Contains(out, "0 got USR1") && strings.Contains(out, "1 got USR1")
	})
	alice.must(t, "scancel -s TERM "+steps[0])
	out := j.completes()
	for name, number := range map[string]string{"USR1": "10", "TERM": "15"} {
		contains(t, j.file("signals.out"), "0 got "+name, "1 got "+name)
		if got, sent := strings.Count(j.file("signals.out"), "got "+name), sent(t, number, steps[0]); got > 2*sent {
			t.Errorf("two programs got %s %d times, Slurm has sent it %d times", name, got, sent)
		}
	}
	contains(t, out, "status: 0", "the VMs are alive")
}
