package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// asPlaced makes a /proc where this process is in step 3 of job 9.
func asPlaced(t *testing.T) (proc string) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	text := "6:freezer:/slurm/uid_1000/job_9/step_3\n4:memory:/slurm/uid_1000/job_9/step_3/task_0\n"
	if err := os.WriteFile(filepath.Join(dir, "cgroup"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return filepath.Dir(dir)
}

func TestCheckOwnPlace(t *testing.T) {
	tests := map[string]struct{ job, step, want string }{
		"its own step":  {"9", "3", ""},
		"another job":   {"8", "3", "this process is not in the cgroup of step 3 of job 8"},
		"another step":  {"9", "0", "this process is not in the cgroup of step 0 of job 9"},
		"no job":        {"", "3", "SLURMV_JOB is not set"},
		"no step":       {"9", "", "SLURMV_STEP is not set"},
		"an odd number": {"9", "-1", "SLURMV_STEP: "},
	}
	proc := asPlaced(t)
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("SLURMV_JOB", tt.job)
			t.Setenv("SLURMV_STEP", tt.step)
			err := checkOwnPlace(proc)
			if (err == nil) != (tt.want == "") || err != nil && !strings.HasPrefix(err.Error(), tt.want) {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
		})
	}
}

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
