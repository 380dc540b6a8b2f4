//go:build cluster

package test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
)

// What people see and do with slurmv while a job runs and after it.
func TestSlurmv(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, "--nodes=2 --vm-per-node=1 --memory-per-vm=384M --time=90"+cold, "slurm-v-run -n 2 sh -c 'echo up; sleep 3000'")
	j.awaitOutput("up")

	var vms []struct {
		Job  string
		VM   string
		Node string
	}
	text := alice.must(t, "slurmv ps --output json "+j.id)
	if err := json.Unmarshal([]byte(text), &vms); err != nil || len(vms) != 2 {
		t.Errorf("ps --output json prints %s (%v)", text, err)
	}
	contains(t, alice.must(t, "slurmv ps "+j.id), "vm0", "vm1", "n1", "n2", firstAddress())
	bobs := bob.submit(t, small, "slurm-v-run sh -c 'echo up; sleep 3000'")
	bobs.awaitOutput("up")
	for _, u := range []struct {
		user
		own, other *job
	}{{alice, j, bobs}, {bob, bobs, j}} {
		seen := u.run(t, "slurmv ps").stdout // it fails if one of the jobs of other scenarios does not answer
		line := func(j *job) bool { return regexp.MustCompile(`(?m)^` + j.id + ` `).MatchString(seen) }
		if !line(u.own) {
			t.Errorf("%s does not see the own VMs:\n%s", u.user, seen)
		}
		if line(u.other) {
			t.Errorf("%s sees the VMs of another:\n%s", u.user, seen)
		}
	}

	o := alice.run(t, "slurmv exec "+j.id+"/vm1 -- sh -c 'hostname; exit 5'")
	if o.code != 5 || !strings.Contains(o.stdout, "vm1") {
		t.Errorf("exec ends with %d and prints %s%s", o.code, o.stdout, o.stderr)
	}
	contains(t, bob.must(t, "slurmv exec "+bobs.id+" -- hostname"), "vm0")
	if o := bob.run(t, "slurmv exec "+j.id+" -- hostname"); o.code == 0 || strings.Contains(o.stdout, "vm0") {
		t.Errorf("bob runs a program in a VM of alice: %s", o.stdout)
	}
	contains(t, alice.must(t, "slurmv console "+j.id+"/vm0"), "Linux version")
	contains(t, alice.must(t, "slurmv report "+j.id), "2 VMs on 2 nodes", "network", "ready")
	contains(t, alice.must(t, "slurmv report --output json "+j.id), `"accel": "`)

	alice.must(t, "scancel "+j.id)
	j.await("CANCELLED")
	poll(func() bool { return alice.run(t, "slurmv logs "+j.id).code == 0 })
	contains(t, alice.must(t, "slurmv logs "+j.id), "Linux version", "guest reported")
	long := alice.must(t, "slurmv report --long "+j.id)
	contains(t, long, "2 VMs on 2 nodes", "vm0", "vm1",
		"queue", "plan", "image", "vf", "taps", "libvirt", "ivshmem", "start", "boot", "agent", "network", "ready")
	if !inOpenStack() { // there, these are nova's work
		contains(t, long, "disk", "define")
	}
	contains(t, alice.must(t, "cd "+j.dir+" && slurmv report --svg l.svg "+j.id+" && cat l.svg"), "<svg", ">vm1<")
}

// The preflight of a node of this cluster finds nothing wrong.
func TestCheck(t *testing.T) {
	t.Parallel()
	out := root.run(t, "slurmv check --node-name n1", "--node", "n1")
	if out.code != 0 {
		t.Errorf("check ends with %d:\n%s%s", out.code, out.stdout, out.stderr)
	}
	contains(t, out.stdout, "libvirt", "KVM")
}
