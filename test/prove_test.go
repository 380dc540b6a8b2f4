//go:build cluster

package test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
)

// A proof is the part of prove.json that the scenarios look at.
type proof struct {
	Passed bool
	Steps  []struct {
		Name, Result, Reason string
		Evidence             []string
	}
	Costs []struct {
		Name string
		Bare []float64
		VMs  []float64
	}
}

// result is that of a step, with the reason.
func (p proof) result(step string) string {
	for _, s := range p.Steps {
		if s.Name == step {
			return strings.TrimSuffix(s.Result+": "+s.Reason, ": ")
		}
	}
	return "none"
}

// prove runs slurmv prove in a directory of its own, and returns what it has printed, the
// proof and its page. Of its jobs nothing may be left.
func (u user) prove(t *testing.T, options string) (outcome, proof, string) {
	t.Helper()
	dir := u.must(t, "mktemp -d ~/prove-XXXXXX")
	t.Cleanup(func() { u.run(t, "rm -rf "+dir) })
	// Its jobs come one after the other, and each may wait for other tests' jobs.
	o := u.runWithin(t, 4*patience, nil, fmt.Sprintf("cd %s && slurmv prove --quick --rounds=1 --memory-per-vm=384M --out=out %s", dir, options))
	for _, job := range regexp.MustCompile(`(?m)^slurmv: job ([0-9]+):`).FindAllStringSubmatch(o.stderr, -1) {
		checkLeaks(t, job[1])
	}
	var p proof
	text := u.must(t, "cat "+dir+"/out/prove.json")
	if err := json.Unmarshal([]byte(text), &p); err != nil {
		t.Errorf("prove.json: %v\n%s", err, text)
	}
	page := u.must(t, "cat "+dir+"/out/prove.html")
	for _, secret := range []string{string(u), dir, "172.30.", `\bn[12]\b`, `\bctl\b`} {
		if found := regexp.MustCompile(secret).FindString(text + page); found != "" {
			t.Errorf("the results tell %q", found)
		}
	}
	return o, p, page
}

// An ordinary user proves that the cluster works.
func TestProve(t *testing.T) {
	t.Parallel()
	o, p, page := alice.prove(t, "--nodes=1 --vm-per-node=2 --sriov=1")
	if o.code != 0 || !p.Passed {
		t.Errorf("slurmv prove ends with %d:\n%s%s", o.code, o.stdout, o.stderr)
	}
	for step, want := range map[string]string{
		"preflight": "passed", "start": "passed", "owner": "passed", "directory": "passed", "ranks": "passed", "streams": "passed",
		"topology": "passed", "huge pages": "skipped: not asked for; --vm-hugepages=2M does", "virtual functions": "passed", "shared memory": "passed", "cost": "passed", "loss": "passed", "cancel": "passed",
		"time limit": "skipped: --quick leaves it out: Slurm's shortest limit is a minute", "leftovers": "passed",
	} {
		if got := p.result(step); got != want {
			t.Errorf("%s: %s, want %s", step, got, want)
		}
	}
	for _, c := range p.Costs {
		if len(c.Bare) != 1 || len(c.VMs) != 1 || c.Bare[0] <= 0 || c.VMs[0] <= 0 {
			t.Errorf("%s is %v on bare nodes and %v in VMs", c.Name, c.Bare, c.VMs)
		}
	}
	// The user cannot list the directories of jobs, and those of this job are found by their names.
	contains(t, strings.Join(p.Steps[len(p.Steps)-1].Evidence, "\n"), "process", "link", "file", "2 directories", "cgroup")
	if len(p.Costs) != 4 {
		t.Errorf("%d costs", len(p.Costs))
	}
	contains(t, page, "<h1>Slurm-V works here: 13 steps passed, 2 skipped</h1>", "emulation (TCG)", "<svg")
}

// What does not work is named, and nothing is waited for that needs it.
func TestProveFails(t *testing.T) {
	t.Parallel()
	o, p, page := alice.prove(t, "--nodes=1 --vm-per-node=1 --image=none-of-them")
	const want = "failed: sbatch refuses the job: --vm-image: none-of-them is not in the site's catalogue"
	if got := p.result("start"); o.code != 1 || p.Passed || !strings.HasPrefix(got, want) {
		t.Errorf("slurmv prove ends with %d; start: %s, want %s\n%s%s", o.code, got, want, o.stdout, o.stderr)
	}
	if got := p.result("ranks"); got != "skipped: the VMs did not start" {
		t.Errorf("ranks: %s", got)
	}
	contains(t, o.stdout, "none-of-them is not in the site's catalogue", "Slurm-V does not work here as it should: 1 of 15 steps failed")
	contains(t, page, "<h1>Slurm-V does not work here as it should: 1 of 15 steps failed</h1>")
}
