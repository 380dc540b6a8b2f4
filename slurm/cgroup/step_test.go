package cgroup

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestParseStep(t *testing.T) {
	tests := map[string]struct {
		line string
		want Step
		ok   bool
	}{
		"version 1":                            {"6:freezer:/slurm/uid_1000/job_9/step_0", Step{Job: "job_9"}, true},
		"version 1, a task's":                  {"4:memory:/slurm/uid_1000/job_9/step_3/task_1", Step{Job: "job_9", StepID: 3}, true},
		"version 1, several slurmd":            {"6:freezer:/slurm_n2/uid_1000/job_9/step_0", Step{Job: "job_9", Node: "n2"}, true},
		"version 2":                            {"0::/system.slice/slurmstepd.scope/job_9/step_2/user/task_0", Step{Job: "job_9", StepID: 2}, true},
		"version 2, in a slice of the site":    {"0::/hpc.slice/slurmstepd.scope/job_9/step_2/user/task_0", Step{Job: "job_9", StepID: 2}, true},
		"version 2, several slurmd":            {"0::/system.slice/n2_slurmstepd.scope/job_9/step_2/user/task_0", Step{Job: "job_9", StepID: 2, Node: "n2"}, true},
		"version 2, by the SLUID":              {"0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_2/user/task_0", Step{Job: "sEKNKTV3WPV500", StepID: 2}, true},
		"a batch script":                       {"6:freezer:/slurm/uid_1000/job_9/step_batch", Step{Job: "job_9", StepID: 0xfffffffb}, true},
		"a controller that is not Slurm's":     {"1:cpu:/", Step{}, false},
		"a job without step":                   {"6:freezer:/slurm/uid_1000/job_9", Step{}, false},
		"a step nobody knows":                  {"6:freezer:/slurm/uid_1000/job_9/step_mine", Step{}, false},
		"a name below a user's own cgroup":     {"0::/user.slice/slurm/uid_1/job_9/step_0", Step{}, false},
		"a number beyond any":                  {"6:freezer:/slurm/uid_1/job_99999999999/step_0", Step{}, false},
		"a host's own slice with Slurm's name": {"0::/system.slice/slurmstepd.scope.d/job_9/step_0", Step{}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := parseStep(tt.line)
			if ok != tt.ok || ok && got != tt.want {
				t.Errorf("%+v, %v; want %+v, %v", got, ok, tt.want, tt.ok)
			}
		})
	}
}

// The content of /proc/PID/cgroup for the agent of step 3 of job 9, recorded from Slurm
// 22.05 with several controllers, and with one hierarchy.
const (
	underV1 = `9:name=systemd:/system.slice/slurmd.service
8:pids:/
6:freezer:/slurm/uid_1000/job_9/step_3
5:devices:/
4:memory:/slurm/uid_1000/job_9/step_3/task_0
3:cpuset:/slurm/uid_1000/job_9/step_3
2:cpuacct:/slurm/uid_1000/job_9/step_3/task_0
1:cpu:/
0::/system.slice/slurmd.service
`
	underV2 = "0::/system.slice/slurmstepd.scope/job_9/step_3/user/task_0\n"
)

func TestCheckStep(t *testing.T) {
	replaced := func(text, old, new string) string {
		if !strings.Contains(text, old) {
			t.Fatalf("%s is not in %s", old, text)
		}
		return strings.Replace(text, old, new, 1)
	}
	tests := map[string]struct{ text, want string }{
		"version 1":                            {underV1, ""},
		"version 1, several slurmd":            {strings.ReplaceAll(underV1, "/slurm/", "/slurm_n2/"), ""},
		"version 1, only Slurm's proctrack":    {"6:freezer:/slurm/uid_1000/job_9/step_3\n1:cpu:/\n", ""},
		"version 2":                            {underV2, ""},
		"version 2, several slurmd":            {strings.Replace(underV2, "slurmstepd", "n2_slurmstepd", 1), ""},
		"version 2, by the SLUID":              {replaced(underV2, "job_9", "sEKNKTV3WPV500"), ""},
		"version 2, by the SLUID, not a step":  {replaced(underV2, "job_9/step_3", "sEKNKTV3WPV500/step_4"), "it is in /system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_4/user/task_0"},
		"version 2, another job":               {replaced(underV2, "job_9", "job_8"), "it is in /system.slice/slurmstepd.scope/job_8/step_3/user/task_0"},
		"one controller of another job":        {replaced(underV1, "memory:/slurm/uid_1000/job_9", "memory:/slurm/uid_1000/job_8"), "it is in /slurm/uid_1000/job_8/step_3/task_0"},
		"one controller of another step":       {replaced(underV1, "cpuset:/slurm/uid_1000/job_9/step_3", "cpuset:/slurm/uid_1000/job_9/step_4"), "it is in /slurm/uid_1000/job_9/step_4"},
		"one controller of the job only":       {replaced(underV1, "job_9/step_3\n", "job_9\n"), "it is in /slurm/uid_1000/job_9"},
		"one controller of Slurm's root":       {replaced(underV1, "memory:/slurm/uid_1000/job_9/step_3/task_0", "memory:/slurm"), "it is in /slurm"},
		"the batch script's step":              {strings.ReplaceAll(underV1, "step_3", "step_batch"), "it is in /slurm/uid_1000/job_9/step_batch"},
		"version 2, before the move":           {"0::/system.slice/slurmstepd.scope/system\n", "it is in /system.slice/slurmstepd.scope/system"},
		"version 2, another step":              {replaced(underV2, "step_3", "step_30"), "it is in /system.slice/slurmstepd.scope/job_9/step_30/user/task_0"},
		"nowhere of Slurm's":                   {"0::/system.slice/slurmd.service\n", "it is in none of Slurm's"},
		"a place that only looks like Slurm's": {"0::/user.slice/slurm/uid_1000/job_9/step_3\n", "it is in none of Slurm's"},
		"nothing":                              {"", "it is in none of Slurm's"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			proc := t.TempDir()
			if err := os.Mkdir(filepath.Join(proc, "77"), 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(proc, "77", "cgroup"), []byte(tt.text), 0o644); err != nil {
				t.Fatal(err)
			}
			err := CheckStep(proc, 77, 9, 3)
			if (err == nil) != (tt.want == "") {
				t.Fatalf("error = %v, want %q", err, tt.want)
			}
			if err != nil && !strings.Contains(err.Error(), "this process is not in the cgroup of step 3 of job 9: "+tt.want) {
				t.Errorf("error = %v, want one with %q", err, tt.want)
			}
		})
	}
	if err := CheckStep(t.TempDir(), 77, 9, 3); err == nil {
		t.Error("a process that is gone is in the step")
	}
}
