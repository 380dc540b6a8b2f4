//go:build cluster

package test

import (
	"os/exec"
	"testing"
	"time"
)

// checkLeaks fails the test if scripts/leaks finds anything of a job on any node,
// or a node was drained. A node may be a moment behind slurmctld.
func checkLeaks(t *testing.T, id string) {
	t.Helper()
	var left []byte
	err := error(nil)
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
		if left, err = exec.Command("../scripts/leaks", id).CombinedOutput(); err == nil {
			break
		}
	}
	if err != nil {
		t.Errorf("job %s left behind:\n%s", id, left)
	}
	if unusable := root.must(t, `sinfo -h -N -o "%N %T %E" | grep -iE 'drain|down|fail' || true`); unusable != "" {
		t.Errorf("nodes are not usable after job %s:\n%s", id, unusable)
	}
}
