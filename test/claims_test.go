//go:build cluster

package test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// probe returns the commands that build, in a job's directory, a rank that looks at its
// device.
func probe(t *testing.T) string {
	t.Helper()
	var script strings.Builder
	for _, file := range []string{"../ivshmem/slurmv_ivshmem.h", "claims/probe.c"} {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&script, "cat > %s <<'END OF FILE'\n%sEND OF FILE\n", filepath.Base(file), source)
	}
	return script.String() + "cc -O2 -o probe probe.c || exit 1\n"
}

// A sight is what one rank of a run has found.
type sight struct{ rank, vm, device, peers string }

var sightLine = regexp.MustCompile(`(?m)^(\S+): rank (\d+) in (vm\d) maps /dev/slurmv/(ivshmem\d) of 1048576 bytes with (\S+): 0 foreign, all signed$`)

// sights checks that so many ranks of a run found the device as it must be.
func sights(t *testing.T, out, run string, ranks int) []sight {
	t.Helper()
	var found []sight
	for _, m := range sightLine.FindAllStringSubmatch(out, -1) {
		if m[1] == run {
			found = append(found, sight{m[2], m[3], m[4], m[5]})
		}
	}
	if len(found) != ranks {
		t.Fatalf("%d ranks of run %s are well, want %d:\n%s", len(found), run, ranks, out)
	}
	for _, s := range found {
		if s.device != found[0].device {
			t.Errorf("run %s has %s and %s", run, s.device, found[0].device)
		}
	}
	return found
}

// checkPeers checks that a rank of four on two nodes shares the device with the other one
// of its node.
func (s sight) checkPeers(t *testing.T) {
	t.Helper()
	if want := map[bool]string{true: "0-1", false: "2-3"}[s.rank < "2"]; s.peers != want {
		t.Errorf("rank %s shares with %s, want %s", s.rank, s.peers, want)
	}
}

const fourVMs = twoByTwo + " "

// whileRun waits, in a script, until a command succeeds. It ends the script if a run, known by its process, ends
// before.
const whileRun = `
while_run() { # PID COMMAND...
	local run=$1; shift
	until "$@"; do
		kill -0 $run || { wait $run; echo "the run ended with $? before: $*"; exit 1; }
		sleep 0.2
	done
}
`

// EASJ: one run after the other. None waits for the one before, and each finds the
// device empty.
func TestTenRunsOneAfterAnother(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, fourVMs+"--ivshmem=1:1M", probe(t)+whileRun+`
for i in $(seq 10); do
	touch run$i.go
	slurm-v-run --no-wait -Q -n 4 --ntasks-per-node=2 ./probe run$i; echo "status $i: $?"
done
claims() { squeue -h -s -j $SLURM_JOB_ID -o %j | grep -cx slurmv; }
slurm-v-run -Q --no-wait -n 1 sh -c 'echo the device is free; until [ -e counted ]; do sleep 0.2; done' & run=$!
while_run $run grep -q "device is free" out
echo "claims of one run: $(claims)"; touch counted; wait $run
for i in $(seq 20); do
	left=$(claims)
	[ $left = 0 ] && break
	sleep 0.5
done
echo "claims left: $left"
`)
	out := j.completes()
	for i := range 10 {
		name := fmt.Sprintf("run%d", i+1)
		contains(t, out, fmt.Sprintf("status %d: 0\n", i+1))
		vms := map[string]bool{}
		for _, s := range sights(t, out, name, 4) {
			vms[s.vm] = true
			s.checkPeers(t)
		}
		if len(vms) != 4 {
			t.Errorf("%s ran in %d VMs, want 4", name, len(vms))
		}
	}
	contains(t, out, "the device is free\n", "claims of one run: 1\n", "claims left: 0\n")
	if strings.Contains(out, "waiting") {
		t.Errorf("somebody waited:\n%s", out)
	}
}

// EACJ: two runs at once in the same VMs, a third that has to wait.
func TestTwoRunsAtOnce(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, fourVMs+"--ivshmem=2:1M", probe(t)+whileRun+`
slurm-v-run --start
started() { [ $(grep -c "^$1: rank" out) = 2 ]; }
slurm-v-run -Q -n 2 --ntasks-per-node=1 ./probe A & a=$!
while_run $a started A
slurm-v-run -Q -n 2 --ntasks-per-node=1 ./probe B & b=$!
while_run $b started B
slurm-v-run --no-wait -n 4 ./probe N 2> no-wait.err; echo "no wait: $?"
slurm-v-run -n 4 --ntasks-per-node=2 ./probe C 2> wait.err & c=$!
while_run $c grep -q waiting wait.err
sleep 2
echo "before: $(grep -c '^C: rank' out)"
touch C.go A.go; wait $a; echo "A: $?"
wait $c; echo "C: $?"
touch B.go; wait $b; echo "B: $?"
`)
	out := j.completes()
	contains(t, out, "no wait: 75\n", "before: 0\n", "A: 0\n", "B: 0\n", "C: 0\n")
	a, b, c := sights(t, out, "A", 2), sights(t, out, "B", 2), sights(t, out, "C", 4)
	if a[0].device == b[0].device || c[0].device != a[0].device {
		t.Errorf("A has %s, B %s, and C, after A, %s", a[0].device, b[0].device, c[0].device)
	}
	for _, x := range a {
		for _, y := range b {
			if x.vm == y.vm {
				t.Errorf("A and B share the CPUs of %s, and other VMs are idle", x.vm)
			}
		}
	}
	contains(t, j.file("no-wait.err"), "every IVShmem device of this job is claimed by another slurm-v-run (--no-wait)")
	if n := strings.Count(j.file("wait.err"), "waiting for an IVShmem device: all 2 are claimed by other slurm-v-run of this job"); n != 1 {
		t.Errorf("the one that waits says so %d times", n)
	}
}

// SACJ: four jobs of two users side by side, each with two VMs on both of two nodes. Each
// run has a device that nobody else writes to.
func TestFourJobsSideBySide(t *testing.T) {
	const options = slender + " --ivshmem=1:1M"
	var jobs []*job
	for _, u := range []user{alice, alice, bob, bob} {
		jobs = append(jobs, u.submit(t, options, probe(t)+`
slurm-v-run -Q -n 1 true && touch ready
until [ -e go ]; do sleep 0.2; done
slurm-v-run -Q -n 4 --ntasks-per-node=2 ./probe $SLURM_JOB_ID; echo "probe: $?"`))
	}
	everyJob := func(what string, done func(*job) bool) {
		t.Helper()
		for _, j := range jobs {
			j.eventually(what, func() bool { return done(j) })
		}
	}
	everyJob("has its VMs", func(j *job) bool { return j.exists("ready") })
	for _, node := range []string{"n1", "n2"} {
		checkRegions(t, node, jobs)
	}
	for _, j := range jobs {
		j.user.must(t, "touch "+j.dir+"/go")
	}
	everyJob("has four ranks with the device", func(j *job) bool { return strings.Count(j.output(), j.id+": rank") == 4 })
	for _, j := range jobs {
		j.user.must(t, "touch "+j.dir+"/"+j.id+".go")
		out := j.completes()
		contains(t, out, "probe: 0\n")
		for _, s := range sights(t, out, j.id, 4) {
			s.checkPeers(t)
		}
	}
}

// checkRegions checks that each of the jobs has one region on a node, which is its user's
// alone.
func checkRegions(t *testing.T, node string, jobs []*job) {
	t.Helper()
	found := root.must(t, "stat -c '%n %U %a' /dev/shm/slurmv-*", "--node", node)
	for _, j := range jobs {
		region := regexp.MustCompile(`(?m)^/dev/shm/slurmv-\w+-` + j.id + `\.0-0-\w+ ` + string(j.user) + ` 600$`)
		if n := len(region.FindAllString(found, -1)); n != 1 {
			t.Errorf("job %s of %s has %d regions on %s, want 1:\n%s", j.id, j.user, n, node, found)
		}
	}
}

// However a run dies, its device is free, when nothing of the run is left that could
// write to it.
func TestAKilledRunFreesItsDevice(t *testing.T) {
	t.Parallel()
	kills := []string{
		"kill -9 $run",
		"kill -9 $run $(pgrep -P $run) $(pgrep -P $(pgrep -d, -P $run))",
		`srun --overlap --nodes=2 --ntasks=2 --ntasks-per-node=1 bash -c "$(declare -f mine)
			kill -9 \$(mine 'slurmv-relay .*probe A$i') 2> /dev/null; true"`,
		"kill -9 $(mine 'slurmv-agent claim')",
	}
	script := probe(t) + whileRun + `
started() { [ $(grep -c "^$1: rank" out) = 4 ]; }
mine() { # processes of this job: its user has others
	for p in $(pgrep -u $(id -u) -f "^/[^ ]*/$1"); do
		if grep -qzx "SLURM_JOB_ID=$SLURM_JOB_ID" /proc/$p/environ; then echo $p; fi
	done 2> /dev/null
}`
	for i, kill := range kills {
		script += fmt.Sprintf(`
i=%d
slurm-v-run -Q -n 4 --ntasks-per-node=2 ./probe A$i leave & run=$!
while_run $run started A$i
slurm-v-run -Q --no-wait -n 1 true; echo "meanwhile $i: $?"
%s
touch B$i.go
slurm-v-run -Q -n 4 --ntasks-per-node=2 ./probe B$i; echo "B$i: $?"
kill $run 2> /dev/null; wait $run; true
`, i, kill)
	}
	out := alice.submit(t, fourVMs+"--ivshmem=1:1M", script).completes()
	for i := range kills {
		contains(t, out, fmt.Sprintf("meanwhile %d: 75\n", i), fmt.Sprintf("B%d: 0\n", i))
		sights(t, out, fmt.Sprintf("B%d", i), 4)
	}
}

// Without devices nothing is claimed: any number of runs at once.
func TestRunsWithoutDevices(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, small, `slurm-v-run --start
slurm-v-run -Q --no-wait -n 1 sh -c 'touch one; until [ -e two ]; do sleep 0.2; done; echo "device: ${SLURMV_IVSHMEM-none}"' &
slurm-v-run -Q --no-wait -n 1 sh -c 'touch two; until [ -e one ]; do sleep 0.2; done; echo "device: ${SLURMV_IVSHMEM-none}"' &
wait
`)
	if out := j.completes(); strings.Count(out, "device: none\n") != 2 {
		t.Errorf("not two runs without device:\n%s", out)
	}
}
