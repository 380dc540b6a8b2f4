package vmlaunch

import "testing"

func TestPlaceOfCgroup(t *testing.T) {
	tests := map[string]struct {
		line string
		want Place
		ok   bool
	}{
		"version 1":                            {"6:freezer:/slurm/uid_1000/job_9/step_0", Place{Job: 9}, true},
		"version 1, a task's":                  {"4:memory:/slurm/uid_1000/job_9/step_3/task_1", Place{Job: 9, Step: 3}, true},
		"version 1, several slurmd":            {"6:freezer:/slurm_n2/uid_1000/job_9/step_0", Place{Job: 9, Node: "n2"}, true},
		"version 2":                            {"0::/system.slice/slurmstepd.scope/job_9/step_2/user/task_0", Place{Job: 9, Step: 2}, true},
		"version 2, several slurmd":            {"0::/system.slice/n2_slurmstepd.scope/job_9/step_2/user/task_0", Place{Job: 9, Step: 2, Node: "n2"}, true},
		"a batch script":                       {"6:freezer:/slurm/uid_1000/job_9/step_batch", Place{Job: 9, Step: 0xfffffffb}, true},
		"a controller that is not Slurm's":     {"1:cpu:/", Place{}, false},
		"a job without step":                   {"6:freezer:/slurm/uid_1000/job_9", Place{}, false},
		"a step nobody knows":                  {"6:freezer:/slurm/uid_1000/job_9/step_mine", Place{}, false},
		"a name below a user's own cgroup":     {"0::/user.slice/slurm/uid_1/job_9/step_0", Place{}, false},
		"a number beyond any":                  {"6:freezer:/slurm/uid_1/job_99999999999/step_0", Place{}, false},
		"a host's own slice with Slurm's name": {"0::/system.slice/slurmstepd.scope.d/job_9/step_0", Place{}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, ok := placeOfCgroup(tt.line)
			if ok != tt.ok || ok && got != tt.want {
				t.Errorf("%+v, %v; want %+v, %v", got, ok, tt.want, tt.ok)
			}
		})
	}
}
