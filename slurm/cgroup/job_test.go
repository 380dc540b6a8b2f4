package cgroup

import "testing"

func TestParseJob(t *testing.T) {
	tests := map[string]struct {
		line string
		want Job
		none bool
	}{
		"finds the job of a step under cgroup v1":           {line: "7:freezer:/slurm_n1/uid_6001/job_42/step_0", want: "job_42"},
		"finds the job of a batch step's task":              {line: "4:memory:/slurm/uid_1000/job_7/step_batch/task_0", want: "job_7"},
		"finds the job of a step under cgroup v2":           {line: "0::/system.slice/slurmstepd.scope/job_9/step_0/user/task_0", want: "job_9"},
		"finds the job of a step of a named slurmd":         {line: "0::/system.slice/n1_slurmstepd.scope/job_9/step_0/user", want: "job_9"},
		"finds the job below a site's own slice":            {line: "0::/hpc.slice/hpc-batch.slice/slurmstepd.scope/job_9/step_0", want: "job_9"},
		"finds a job that is called by its SLUID":           {line: "0::/system.slice/slurmstepd.scope/sEKNKTV3WPV500/step_0/user", want: "sEKNKTV3WPV500"},
		"ignores slurmd's own directory of the scope":       {line: "0::/system.slice/slurmstepd.scope/system", none: true},
		"ignores a SLUID under cgroup v1":                   {line: "7:freezer:/slurm/uid_1/sEKNKTV3WPV500/step_0", none: true},
		"ignores one in a slice of a user's own manager":    {line: "0::/user.slice/user-1000.slice/user@1000.service/app.slice/slurmstepd.scope/job_9", none: true},
		"ignores a cgroup that a user made look like a job": {line: "0::/user.slice/user-1000.slice/user@1000.service/slurmstepd.scope/job_9", none: true},
		"ignores a job's name deeper in a user's path":      {line: "3:cpu:/user/slurm/uid_0/job_9", none: true},
		"ignores a process outside of jobs":                 {line: "0::/system.slice/sshd.service", none: true},
		"ignores a number that is none":                     {line: "7:freezer:/slurm/uid_1/job_99999999999/step_0", none: true},
		"ignores a line that is not one":                    {line: "freezer", none: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, found := parseJob(tt.line)
			if found == tt.none || got != tt.want && !tt.none {
				t.Errorf("parseJob(%q) = %q, %v; want %q, %v", tt.line, got, found, tt.want, !tt.none)
			}
		})
	}
}

func TestID(t *testing.T) {
	for name, want := range map[Job]uint32{"job_42": 42, "job_4294967295": 4294967295, "sEKNKTV3WPV500": 0, "job_4294967296": 0, "42": 0, "": 0} {
		if id, ok := name.ID(); id != want && ok || ok != (want != 0) {
			t.Errorf("%q: %d, %v; want %d", name, id, ok, want)
		}
	}
}
