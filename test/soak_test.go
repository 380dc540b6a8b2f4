//go:build cluster && soak

package test

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
)

var (
	soakCycles = flag.Int("cycles", 200, "start and end so `many` jobs with VMs")
	soakReport = flag.String("report", "", "write what was counted into this `file`")
)

// An ending is one way in which a job with VMs ends.
type ending struct {
	name    string
	options string // of sbatch, beside the VMs'
	script  string
	end     func(*job) // nil if it ends by itself
	state   string     // what Slurm calls the end
}

const soakProgram = "slurm-v-run sh -c 'echo running; sleep 1000'"

// endings are all that a cycle may be, in turns.
var endings = []ending{
	{name: "the script ends", script: "slurm-v-run -n 1 true", state: "COMPLETED"},
	{name: "cancelled in the queue", options: " --begin=now+1hour", script: soakProgram, end: cancelAt("PENDING", ""), state: "CANCELLED"},
	{name: "cancelled while launching", script: soakProgram, end: cancelAt("RUNNING", "image"), state: "CANCELLED"},
	{name: "the script fails", script: "slurm-v-run -n 1 true; exit 7", state: "FAILED"},
	{name: "cancelled while booting", script: soakProgram, end: cancelAt("RUNNING", "boot"), state: "CANCELLED"},
	{name: "cancelled while running", script: soakProgram, end: cancelAt("RUNNING", "running"), state: "CANCELLED"},
	{name: "the agent killed while booting", script: soakProgram, end: killAt("boot", "slurmv-agent launch"), state: "FAILED"},
	{name: "the program fails", script: "slurm-v-run -n 1 false", state: "FAILED"},
	{name: "the agent killed while running", script: soakProgram, end: killAt("running", "slurmv-agent launch"), state: "FAILED"},
	{name: "QEMU killed while running", script: soakProgram, end: killAt("running", "guest=slurmv-.*-vm0,"), state: "FAILED"},
}

// cancelAt cancels a job when it is in a state and its output has a text.
func cancelAt(state, text string) func(*job) {
	return func(j *job) {
		j.await(state)
		if text != "" {
			j.awaitOutput(text)
		}
		j.user.must(j.t, "scancel "+j.id)
	}
}

// killAt kills processes of a job on its first node, by their command line, when the
// job's output has a text.
func killAt(text, pattern string) func(*job) {
	return func(j *job) {
		j.awaitOutput(text)
		j.signal("KILL", pattern)
	}
}

// A cycle is one start and end of VMs.
type cycle struct {
	ending
	user    user
	vms     string // options
	started int    // VMs that are asked for
}

// soakCycle is the i-th one. The numbers have no common divisor, so that every way to end
// meets every shape.
func soakCycle(i int) cycle {
	nodes, perNode := 1+i%7/6, 1+i%3/2
	c := cycle{ending: endings[i%len(endings)], user: []user{alice, bob}[i/len(endings)%2], started: nodes * perNode}
	c.vms = fmt.Sprintf("--nodes=%d --vm-per-node=%d --memory-per-vm=256M --vm-ready-timeout=900 --time=90", nodes, perNode)
	if i%3 != 0 {
		c.vms += " --ivshmem=1:2M"
	}
	if i/len(endings)%2 == 0 {
		c.vms += " --sriov=1:pf=vf0"
	}
	return c
}

func (c cycle) run(t *testing.T) {
	j := c.user.submit(t, c.vms+c.options, c.script)
	if c.end != nil {
		c.end(j)
	}
	j.ends(c.state, "")
}

// TestSoak starts and ends VMs in all ways many times and looks whether anything grows on
// the nodes. `make soak` runs it on a cluster of its own: a job of somebody else's would
// be counted, too.
func TestSoak(t *testing.T) {
	runCycles(t, "warm up", 0, len(endings)) // what Slurm, libvirt and the agent make once and keep
	before := settled(t, nil)
	began := time.Now()
	vms := runCycles(t, "soak", len(endings), *soakCycles)
	took := time.Since(began)
	after := settled(t, before)
	table := compare(t, before, after)
	t.Logf("%d cycles with %d VMs in %v\n%s", *soakCycles, vms, took.Round(time.Second), table)
	if *soakReport != "" && !t.Failed() {
		text := fmt.Sprintf(soakText, *soakCycles, vms, endingsText(), table)
		if err := os.WriteFile(*soakReport, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// runCycles runs count cycles, as many at a time as -parallel says, and returns how many
// VMs were asked for.
func runCycles(t *testing.T, name string, first, count int) (vms int) {
	t.Run(name, func(t *testing.T) {
		for i := first; i < first+count; i++ {
			c := soakCycle(i)
			vms += c.started
			t.Run(fmt.Sprintf("%03d %s", i, c.name), func(t *testing.T) {
				t.Parallel()
				c.run(t)
			})
		}
	})
	return vms
}

// A census is how many there are of each thing on each host.
type census map[string]map[string]int

// hosts are those of the cluster with two nodes.
var hosts = []string{"ctl", "n1", "n2"}

// settled counts when nothing moves any more: twice the same, or, after the cycles, no more
// than before. It gives Slurm some minutes to forget jobs.
func settled(t *testing.T, before census) (now census) {
	t.Helper()
	last := takeCensus(t)
	poll(func() bool {
		time.Sleep(5 * time.Second)
		now = takeCensus(t)
		calm := before == nil && maps.EqualFunc(now, last, maps.Equal) || before != nil && len(grown(before, now)) == 0
		last = now
		return calm
	})
	return now
}

func takeCensus(t *testing.T) census {
	t.Helper()
	all, mu := census{}, sync.Mutex{}
	var each sync.WaitGroup
	for _, host := range hosts {
		each.Go(func() {
			out, err := exec.Command("../scripts/census", host).Output()
			if err != nil {
				t.Errorf("count on %s: %v", host, err)
			}
			mu.Lock()
			defer mu.Unlock()
			all[host] = readCensus(string(out))
		})
	}
	each.Wait()
	return all
}

func readCensus(text string) map[string]int {
	counts := map[string]int{}
	for line := range strings.Lines(text) {
		what, number, _ := strings.Cut(strings.TrimSpace(line), "\t")
		counts[what], _ = strconv.Atoi(number)
	}
	return counts
}

// slack is by how much something may grow that the project does not decide: a daemon's
// memory, with what the C library keeps, in KiB. slurmctld remembers each job for an hour
// (MinJobAge); one without VMs costs it 38 KiB.
func slack(what string) int {
	switch {
	case what == "memory of slurmctld, KiB":
		return 2048 + 40**soakCycles
	case strings.HasPrefix(what, "memory of slurm"):
		return 2048 + 8**soakCycles
	}
	return 0
}

// grown names what there is more of than there may be.
func grown(before, after census) (all []string) {
	for _, host := range hosts {
		for _, what := range slices.Sorted(maps.Keys(after[host])) {
			if was, is := before[host][what], after[host][what]; is > was+slack(what) {
				all = append(all, fmt.Sprintf("%s: %s: %d, before %d", host, what, is, was))
			}
		}
	}
	return all
}

// compare reports what has grown, and returns a table of all that was counted.
func compare(t *testing.T, before, after census) string {
	t.Helper()
	for _, g := range grown(before, after) {
		t.Error(g)
	}
	kinds := map[string]bool{}
	for _, counts := range after {
		for what := range counts {
			kinds[what] = true
		}
	}
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 1, ' ', 0)
	fmt.Fprintln(w, "| before → after\t| "+strings.Join(hosts, "\t| ")+"\t|")
	fmt.Fprintln(w, "| ---"+strings.Repeat("\t| --:", len(hosts))+"\t|")
	for _, what := range slices.Sorted(maps.Keys(kinds)) {
		fmt.Fprint(w, "| "+what)
		for _, host := range hosts {
			fmt.Fprint(w, "\t| "+change(before[host], after[host], what))
		}
		fmt.Fprintln(w, "\t|")
	}
	_ = w.Flush()
	return table.String()
}

func change(before, after map[string]int, what string) string {
	is, counted := after[what]
	switch was := before[what]; {
	case !counted:
		return ""
	case was == is:
		return strconv.Itoa(is)
	default:
		return fmt.Sprintf("%d → %d", was, is)
	}
}

func endingsText() string {
	var text strings.Builder
	for _, e := range endings {
		fmt.Fprintf(&text, "- %s: %s\n", e.name, e.state)
	}
	return text.String()
}

const soakText = `# Many starts and ends

%d jobs that ask for %d VMs, several at a time, of two users on two nodes of the
development cluster: one or two VMs on one or two nodes, two thirds of them with shared
memory (IVShmem), half with a virtual function. They end in turns like this, and Slurm says:

%s
After each of them ` + "`scripts/leaks`" + ` finds nothing of the job on any node, and no node is
drained. Before and after all of them ` + "`scripts/census`" + ` counts on each host what jobs could
leave, with ordinary tools instead of Slurm-V's own records. Nothing has grown but the memory
of Slurm's daemons. It may grow by 2 MiB, and for each job by 40 KiB in slurmctld, which remembers
jobs for an hour, and by 8 KiB in the others. A few jobs run before the first count, because
Slurm, libvirt and the agent make some things once and keep them.

%s
Measured by ` + "`make soak-cycles`" + `, which fails if anything grows.
`
