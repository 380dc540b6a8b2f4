//go:build cluster

package test

import (
	"os/exec"
	"testing"
	"time"
)

// The search for leaks finds all that a job has while it runs. Else its silence, when the
// job is over, would prove nothing.
func TestWhatAJobHasIsFound(t *testing.T) {
	t.Parallel()
	j := alice.submit(t, "--nodes=2 --vm-per-node=1 --memory-per-vm=384M --time=90 --sriov=1:pf=vf0 --ivshmem=1:1M --vm-image="+alice.remoteImage(t),
		"slurm-v-run sh -c 'echo up; sleep 3000'")
	j.awaitOutput("up")
	found, err := exec.Command("../scripts/leaks", j.id).Output()
	if err == nil {
		t.Error("the search is content")
	}
	for _, node := range []string{"n1", "n2"} {
		for _, kind := range []string{"process", "link", "VLAN", "lease", "nftables", "shared memory", "image", "directory", "cgroup"} {
			contains(t, string(found), node+": "+kind+": ")
		}
	}
}

// checkLeaks fails the test if scripts/leaks finds anything of a job on any node,
// or a node was drained. A node may be behind slurmctld, for a minute if its disk stands still.
func checkLeaks(t *testing.T, id string) {
	t.Helper()
	var left []byte
	err := error(nil)
	for end := time.Now().Add(3 * time.Minute); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		if left, err = exec.Command("../scripts/leaks", id).CombinedOutput(); err == nil {
			break
		}
	}
	if err != nil {
		t.Errorf("job %s left behind:\n%s", id, left)
	}
	checkNodes(t, "after job "+id)
}

// checkNodes checks that all nodes take jobs.
func checkNodes(t *testing.T, when string) {
	t.Helper()
	if unusable := root.must(t, `sinfo -h -N -o "%N %T %E" | grep -iE 'drain|down|fail' || true`); unusable != "" {
		t.Errorf("nodes are not usable %s:\n%s", when, unusable)
	}
}
