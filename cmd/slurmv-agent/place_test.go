package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// This process is in no step, and launch looks at that before it reads the request.
func TestLaunchOutsideItsStepIsRefused(t *testing.T) {
	got := startAgent(t, "SLURMV_JOB=9", "SLURMV_STEP=3", "SLURMV_NODE=n1", "SLURMV_SPEC=?")
	if !strings.Contains(got, "node n1: this process is not in the cgroup of step 3 of job 9: it is in none of Slurm's") {
		t.Errorf("launch said %q", got)
	}
	// A step that is not told is refused for that, so the words above are the check's.
	if got := startAgent(t, "SLURMV_JOB=9", "SLURMV_NODE=n1"); !strings.Contains(got, "SLURMV_STEP is not set") {
		t.Errorf("launch without a step said %q", got)
	}
}

// startAgent returns what slurmv-agent launch says of why it fails.
func startAgent(t *testing.T, env ...string) string {
	t.Helper()
	c := exec.Command("/proc/self/exe", "launch")
	c.Env = slices.Concat(env, []string{stateVariable + "=" + filepath.Join(t.TempDir(), "state")})
	status, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer status.Close()
	c.ExtraFiles = []*os.File{status}
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return string(out)
}
