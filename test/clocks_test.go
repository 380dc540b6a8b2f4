//go:build cluster

package test

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// keepBusy has a process compute on every CPU of the machine until the context ends.
func keepBusy(ctx context.Context, t *testing.T) {
	t.Helper()
	const compute = "while kill -0 $PPID 2>/dev/null; do n=0; while [ $n -lt 20000 ]; do n=$((n+1)); done; done"
	for range runtime.NumCPU() {
		c := exec.CommandContext(ctx, "sh", "-c", compute)
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Wait() })
	}
}

// A vmClock is what slurmv ps says of a VM and its clock.
type vmClock struct {
	VM    string
	Clock *struct {
		Rate, Error float64
		Source      string
	}
}

// clocks waits until the clocks of n VMs of the job are measured.
func (j *job) clocks(n int) (vms []vmClock) {
	j.t.Helper()
	j.eventually(fmt.Sprintf("has %d VMs with clocks that are measured", n), func() bool {
		vms = nil
		out := j.user.run(j.t, "slurmv ps --output json "+j.id).stdout
		if err := json.Unmarshal([]byte(out), &vms); err != nil || len(vms) != n {
			return false
		}
		for _, vm := range vms {
			if vm.Clock == nil {
				return false
			}
		}
		return true
	})
	return vms
}

// checkClocks checks that n VMs of the job have clocks that are right to within 1 %.
func (j *job) checkClocks(n int) {
	j.t.Helper()
	for _, vm := range j.clocks(n) {
		j.t.Logf("%s: rate %.4f ±%.4f by %s", vm.VM, vm.Clock.Rate, vm.Clock.Error, vm.Clock.Source)
		if math.Abs(vm.Clock.Rate-1) > 0.01 || vm.Clock.Error > 0.011 {
			j.t.Errorf("the clock of %s runs %.4f (±%.4f) times as fast as the node's", vm.VM, vm.Clock.Rate, vm.Clock.Error)
		}
	}
}

// rates are the clock rates of all VMs of this run, as the agents have measured them.
type rates struct {
	mu  sync.Mutex
	all []float64
}

var guestClocks rates

var rateInLog = regexp.MustCompile(`msg="clock measured" .*rate="(\S+) `)

// add notes what a job's agents have logged.
func (r *rates) add(log string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, found := range rateInLog.FindAllStringSubmatch(log, -1) {
		if rate, err := strconv.ParseFloat(found[1], 64); err == nil {
			r.all = append(r.all, rate)
		}
	}
}

func (r *rates) String() string {
	if len(r.all) == 0 {
		return "clocks: none was measured"
	}
	slices.Sort(r.all)
	return fmt.Sprintf("clocks: of %d VMs, the slowest runs %.3f and the fastest %.3f times as fast as its node's",
		len(r.all), r.all[0], r.all[len(r.all)-1])
}

// tellUptimes prints the uptimes of the job's VMs twice, and between which times of the
// host each was read. It then waits for the file go.
const tellUptimes = `
look() {
	date +%s.%N > begin$1
	slurm-v-run -Q -n 4 sh -c 'read up rest < /proc/uptime; echo $(hostname) $up' | sort > uptimes$1
	date +%s.%N > end$1
}
look 0 # the VMs start
look 1; sleep 20; look 2
echo HOST $(cat begin1 end1 begin2 end2)
join uptimes1 uptimes2
echo told
until [ -e go ]; do sleep 0.3; done`

var hostTimes = regexp.MustCompile(`(?m)^HOST (\S+) (\S+) (\S+) (\S+)$`)
var upTimes = regexp.MustCompile(`(?m)^(vm\d+) (\S+) (\S+)$`)

func seconds(t *testing.T, text string) float64 {
	t.Helper()
	s, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// checkUptimes checks, without trusting the agents, that no VM's time passes certainly
// faster or slower than the host's. /proc/uptime has hundredths of seconds.
func checkUptimes(t *testing.T, out string) {
	t.Helper()
	host, vms := hostTimes.FindStringSubmatch(out), upTimes.FindAllStringSubmatch(out, -1)
	if host == nil || len(vms) != 4 {
		t.Fatalf("not all VMs have told their uptimes:\n%s", out)
	}
	least := seconds(t, host[3]) - seconds(t, host[2]) - 0.01
	most := seconds(t, host[4]) - seconds(t, host[1]) + 0.01
	for _, vm := range vms {
		passed := seconds(t, vm[3]) - seconds(t, vm[2])
		if passed < 0.99*least || passed > 1.01*most {
			t.Errorf("%.2f s have passed in %s, on the host %.2f to %.2f s", passed, vm[1], least, most)
		}
	}
}

// The clocks of VMs run right although they started while every core was busy, with
// their neighbours and with other processes. Those that boot have measured their clocks
// meanwhile; those from a template have its clock.
func TestClocksOfVMsThatStartOnABusyMachine(t *testing.T) {
	t.Parallel()
	for _, start := range []string{"cold", "warm"} {
		t.Run(start, func(t *testing.T) {
			t.Parallel()
			j := alice.submit(t, "--nodes=2 --vm-per-node=2 --vm-start="+start+warmShape, tellUptimes)
			j.await("RUNNING")
			busy, quiet := context.WithCancel(t.Context())
			keepBusy(busy, t)
			j.eventually("has VMs", func() bool { return j.exists("end0") })
			quiet()
			j.awaitOutput("told")
			j.checkClocks(4)
			checkUptimes(t, j.output())
			alice.must(t, "touch "+j.dir+"/go")
			j.completes()
		})
	}
}
