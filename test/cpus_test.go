//go:build cluster

package test

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// needRealCPUs skips a test where Slurm's CPUs are not the machine's.
func needRealCPUs(t *testing.T) {
	t.Helper()
	if config := root.must(t, "scontrol show config"); field(strings.ReplaceAll(config, " ", ""), "ConstrainCores") != "yes" {
		t.Skip("the CPUs of this cluster are imagined: run scripts/cluster up --real-cpus")
	}
}

// VMs run on the CPUs that Slurm has given to their job, and on no others. That can
// be seen only where the nodes own the CPUs they have.
func TestVMsStayOnTheCPUsOfTheirJob(t *testing.T) {
	needRealCPUs(t)
	const script = `
slurm-v-run -Q hostname
qemu=$(pgrep -f "guest=slurmv-$SLURM_JOB_ID\.0-vm0,")
echo "QEMU: $(grep -h Cpus_allowed_list /proc/$qemu/task/*/status | sort -u | xargs)"
echo "script: $(grep Cpus_allowed_list /proc/self/status | xargs)"
touch done
until [ -e go ]; do sleep 0.3; done`
	first, second := alice.submit(t, small, script), alice.submit(t, small, script)
	for _, j := range []*job{first, second} {
		j.eventually("runs its program", func() bool { return j.exists("done") })
	}
	alice.must(t, "touch "+first.dir+"/go "+second.dir+"/go")
	cpus := map[string]bool{}
	for _, j := range []*job{first, second} {
		out := j.completes()
		contains(t, out, "vm0\n")
		same(t, out, "QEMU", "script")
		cpus[value(out, "QEMU")] = true
	}
	if len(cpus) != 2 {
		t.Errorf("two jobs at once share %v", cpus)
	}
}

// node is the one that the job runs on.
func (j *job) node() string {
	j.t.Helper()
	return field(j.user.must(j.t, "scontrol show job "+j.id), "NodeList")
}

// onNode runs a script as root on the job's node. It knows $qemu, the process of vm0,
// and $job, the job's number.
func (j *job) onNode(script string) string {
	j.t.Helper()
	find := fmt.Sprintf(`job=%s qemu=
for p in $(pgrep -f 'guest=slurmv-%[1]s\.0-vm0,'); do # another cluster of the machine may have a job of that number
	[[ ! /proc/$p/ns/net -ef /proc/self/ns/net ]] || qemu=$p
done
[[ $qemu ]] || exit
`, j.id)
	return root.must(j.t, find+script, "--node", j.node())
}

// burn keeps a vCPU busy until the file go is there.
const burn = `sh -c 'echo burning; while [ ! -e go ]; do n=0; while [ $n -lt 20000 ]; do n=$((n+1)); done; done'`

// A program that burns all vCPUs has the job's cores and no others, by its pinning and
// as seen where QEMU's threads run. So the job beside it has all of its own core.
func TestABurningVMLeavesOtherJobsAlone(t *testing.T) {
	needRealCPUs(t)
	j := alice.submit(t, small, "echo \"script: $(grep Cpus_allowed_list /proc/self/status | cut -f2)\"\nslurm-v-run -Q "+burn)
	j.awaitOutput("burning")
	own := value(j.output(), "script")

	other := bob.submit(t, "--nodes=1 --ntasks=1 --time=90", `
echo "script: $(grep Cpus_allowed_list /proc/self/status | cut -f2)"
TIMEFORMAT='%R %U %S'
time timeout 20 sh -c 'while :; do :; done'
true`)
	threads := j.onNode(`
grep -h Cpus_allowed_list /proc/$qemu/task/*/status | cut -f2
for i in $(seq 100); do sed 's/.*) //' /proc/$qemu/task/*/stat | cut -d' ' -f37; sleep 0.1; done`)
	cpus := map[int]bool{}
	for _, c := range parseCPUs(t, own) {
		cpus[c] = true
	}
	for seen := range strings.Lines(threads) {
		for _, c := range parseCPUs(t, strings.TrimSpace(seen)) {
			if !cpus[c] {
				t.Fatalf("QEMU of the job with the CPUs %s has been on CPU %d", own, c)
			}
		}
	}
	out := other.completes()
	if value(out, "script") == own {
		t.Errorf("both jobs have the CPUs %s", own)
	}
	var wall, user, system float64
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if _, err := fmt.Sscan(lines[len(lines)-1], &wall, &user, &system); err != nil {
		t.Errorf("%v: %s", err, out)
	}
	t.Logf("a job beside a burning VM computed for %.1f s of %.1f", user+system, wall)

	var vms []struct{ CPUs, Unpinned string }
	text := alice.must(t, "slurmv ps --output json "+j.id)
	if err := json.Unmarshal([]byte(text), &vms); err != nil || len(vms) != 1 || vms[0].CPUs != own {
		t.Errorf("ps does not show that the VM is pinned to %s: %s (%v)", own, text, err)
	}
	contains(t, alice.must(t, "slurmv ps -l "+j.id), "CPUS", own)
	alice.must(t, "touch "+j.dir+"/go")
	j.completes()
}

// parseCPUs reads the kernel's "0-3,8".
func parseCPUs(t *testing.T, list string) (all []int) {
	t.Helper()
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, errTo := strconv.Atoi(last)
		if err != nil || errTo != nil {
			t.Fatalf("%q is no list of CPUs", list)
		}
		for ; from <= to; from++ {
			all = append(all, from)
		}
	}
	return all
}

// Where Slurm confines nobody, nothing is pinned, and slurmv says why.
func TestVMsOnImaginedCPUsAreNotPinned(t *testing.T) {
	t.Parallel()
	if config := root.must(t, "scontrol show config"); field(strings.ReplaceAll(config, " ", ""), "ConstrainCores") == "yes" {
		t.Skip("the CPUs of this cluster are real")
	}
	j := alice.submit(t, small, "slurm-v-run -Q sh -c 'echo up; sleep 3000'")
	j.awaitOutput("up")
	contains(t, alice.must(t, "slurmv ps -l "+j.id), "not pinned")
	contains(t, alice.must(t, "slurmv ps --output json "+j.id), "ConstrainCores")
}

// sacct reports the time that VMs have computed, although libvirt has started them.
func TestSacctReportsTheTimeOfVMs(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, small+" --time=90", `
slurm-v-run -Q `+burn+`
echo burnt
until [ -e on ]; do sleep 0.3; done`)
	j.awaitOutput("burning")
	// All processes of the VM step, and their children that have ended.
	computed := func() float64 {
		seconds, err := strconv.ParseFloat(j.onNode(`
for p in /proc/[0-9]*; do
	grep -q ":/[^.].*/job_$job/step_0\(/\|\$\)" $p/cgroup && sed 's/.*) //' $p/stat
done 2> /dev/null | awk -v hz=$(getconf CLK_TCK) '{s += $12+$13+$14+$15} END {print s/hz}'`), 64)
		if err != nil {
			t.Fatal(err)
		}
		return seconds
	}
	poll(func() bool { return computed() > 20 })
	alice.must(t, "touch "+j.dir+"/go")
	j.awaitOutput("burnt")
	kernel := computed()
	alice.must(t, "touch "+j.dir+"/on")
	j.completes()
	var reported float64
	poll(func() bool {
		reported = cpuTime(alice.must(t, "sacct -n -P -o JobName,State,TotalCPU -j "+j.id+" | grep '^slurm-v|' | grep -v RUNNING; true"))
		return reported > 0
	})
	// The difference is what the step's own processes did, at its start and its end.
	if math.Abs(reported-kernel) > 3 {
		t.Errorf("sacct reports %.1f s, and the kernel %.1f", reported, kernel)
	}
	t.Logf("sacct reports %.1f s, and the kernel %.1f", reported, kernel)
}

// cpuTime reads the seconds in the last column of sacct: [[D-]HH:]MM:SS.mmm.
func cpuTime(line string) (seconds float64) {
	columns := strings.Split(strings.TrimSpace(line), "|")
	text := columns[len(columns)-1]
	days, rest, found := strings.Cut(text, "-")
	if found {
		d, _ := strconv.ParseFloat(days, 64)
		seconds, text = d*24, rest
	}
	for part := range strings.SplitSeq(text, ":") {
		n, _ := strconv.ParseFloat(part, 64)
		seconds = seconds*60 + n
	}
	return seconds
}

// A job whose VMs grow beyond its memory is ended by Slurm, which says so. Admission
// keeps VMs from that, so the job's limit is lowered while it runs.
func TestAVMBeyondTheMemoryOfItsJob(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, "--nodes=1 --vm-per-node=1 --memory-per-vm=640M --time=90", `
slurm-v-run -Q sh -c 'echo up; until [ -e go ]; do sleep 0.3; done; head -c 450M /dev/zero | tail | wc -c; sleep 3000'`)
	j.awaitOutput("up")
	j.onNode(`
path() { sed -n "s,^$1,,p" /proc/$qemu/cgroup | sed "s,\(/job_$job\)/.*,\1,"; }
if [ -e /sys/fs/cgroup/cgroup.controllers ]; then
	group=/sys/fs/cgroup$(path 0::) limit=memory.max used=anon
else
	group=/sys/fs/cgroup/memory$(path '[0-9]*:memory:') limit=memory.limit_in_bytes used=total_rss
fi
[ -e $group/$limit ] || exit
echo $(($(sed -n "s/^$used //p" $group/memory.stat) + (64 << 20))) > $group/$limit`)
	alice.must(t, "touch "+j.dir+"/go")
	if s := j.await("COMPLETED", "FAILED", "OUT_OF_MEMORY"); s == "COMPLETED" {
		t.Error("the job has completed")
	}
	contains(t, j.output(), "vm0", "failed: its QEMU process ended (the job's memory is used up)")
	contains(t, alice.must(t, "sacct -n -j "+j.id+" -o JobName,State"), "OUT_OF_ME")
}

// awaitStopped waits until Slurm has stopped the VM step, which it does two seconds after it has told the programs.
func (j *job) awaitStopped() {
	j.t.Helper()
	log := clusterDir() + "/log/slurmd-" + j.node() + ".log"
	j.eventually("is stopped", func() bool {
		text, _ := os.ReadFile(log)
		return strings.Contains(string(text), "Suspended StepId="+j.id+".0\n")
	})
}

// The VMs of a job stop with it and go on with it: the same VMs, with the same
// programs, however long that took.
func TestSuspendAndResume(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, small, `
slurm-v-run -Q sh -c 'cat /proc/sys/kernel/random/boot_id > before; while [ ! -e go ]; do echo tick >> ticks; sleep 0.5; done; echo "status of the loop: 0"'
slurm-v-run -Q cat /proc/sys/kernel/random/boot_id > after
cmp before after && echo "the same VM"`)
	ticks := func() int { return len(j.read("ticks")) }
	j.eventually("ticks", func() bool { return ticks() > 0 })

	root.must(t, "scontrol suspend "+j.id)
	j.await("SUSPENDED")
	const computed = `sed 's/.*) //' /proc/$qemu/stat | cut -d' ' -f12,13`
	j.awaitStopped()
	before, time0 := ticks(), j.onNode(computed)
	time.Sleep(40 * time.Second) // more than any timeout has that could be misled
	if after, time1 := ticks(), j.onNode(computed); after != before || time0 != time1 || time0 == "" {
		t.Errorf("a suspended job went on: %d ticks and then %d, CPU time %s and then %s", before, after, time0, time1)
	}

	root.must(t, "scontrol resume "+j.id)
	j.eventually("ticks again", func() bool { return ticks() > before && j.onNode(computed) != time0 })
	contains(t, alice.must(t, "slurmv exec "+j.id+"/vm0 -- hostname"), "vm0")
	alice.must(t, "touch "+j.dir+"/go")
	contains(t, j.completes(), "status of the loop: 0\n", "the same VM\n")
}

// The time in which a job was suspended does not count as time to boot: a VM that never boots
// fails for it only when the job has run so long.
func TestSuspendedWhileBooting(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, small+" --vm-ready-timeout=80 --vm-image="+emptyImage(t), "slurm-v-run hostname")
	j.awaitOutput("boot")
	root.must(t, "scontrol suspend "+j.id)
	time.Sleep(85 * time.Second)
	root.must(t, "scontrol resume "+j.id)
	time.Sleep(10 * time.Second)
	if state := j.state(); state != "RUNNING" {
		t.Errorf("ten seconds after it was resumed the job is %s: the time in which it was suspended counts", state)
	}
	contains(t, j.ends("FAILED", "1:0"), "--vm-ready-timeout")
}

func TestCancelledWhileSuspended(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, small, "slurm-v-run sh -c 'echo running; sleep 1000'")
	j.awaitOutput("running")
	root.must(t, "scontrol suspend "+j.id)
	j.await("SUSPENDED")
	alice.must(t, "scancel "+j.id)
	j.ends("CANCELLED", "")
}
