package slurm

import (
	"strings"
	"testing"
)

func TestTaskOf(t *testing.T) {
	tests := map[string]struct {
		procid, ntasks, localid, nodeid, perNode string
		want                                     Task
		err                                      string
	}{
		"one task":             {"0", "1", "0", "0", "1", Task{0, 1, 0, 1}, ""},
		"a repeated entry":     {"5", "6", "1", "2", "2(x3)", Task{5, 6, 1, 2}, ""},
		"an entry behind":      {"6", "7", "0", "3", "2(x3),1", Task{6, 7, 0, 1}, ""},
		"several entries":      {"4", "8", "1", "1", "3,4,1", Task{4, 8, 1, 4}, ""},
		"outside of a step":    {"", "1", "0", "0", "1", Task{}, "runs as a task of a Slurm step"},
		"too few nodes":        {"5", "6", "1", "3", "2(x3)", Task{}, "too few nodes"},
		"an id that is high":   {"5", "6", "2", "2", "2(x3)", Task{}, "task 2 of 2 tasks"},
		"a list that is none":  {"5", "6", "1", "2", "x", Task{}, "SLURM_STEP_TASKS_PER_NODE"},
		"a count that is none": {"5", "6", "1", "2", "2(xy)", Task{}, "SLURM_STEP_TASKS_PER_NODE"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			env := map[string]string{"SLURM_PROCID": tt.procid, "SLURM_STEP_NUM_TASKS": tt.ntasks,
				"SLURM_LOCALID": tt.localid, "SLURM_NODEID": tt.nodeid, "SLURM_STEP_TASKS_PER_NODE": tt.perNode}
			got, err := TaskOf(func(name string) string { return env[name] })
			switch {
			case tt.err == "" && err != nil:
				t.Fatal(err)
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
				t.Fatalf("error = %v, want one with %q", err, tt.err)
			case err == nil && got != tt.want:
				t.Errorf("task = %+v, want %+v", got, tt.want)
			}
		})
	}
}

func TestSrunAddress(t *testing.T) {
	tests := map[string]struct {
		env  map[string]string
		want string
	}{
		"a step":              {map[string]string{"SLURM_SRUN_COMM_HOST": "10.0.0.1", "SLURM_SRUN_COMM_PORT": "40123"}, "10.0.0.1:40123"},
		"a step by IPv6":      {map[string]string{"SLURM_SRUN_COMM_HOST": "fd00::1", "SLURM_SRUN_COMM_PORT": "40123"}, "[fd00::1]:40123"},
		"no step":             {map[string]string{}, ""},
		"a step with no host": {map[string]string{"SLURM_SRUN_COMM_PORT": "40123"}, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := SrunAddress(func(name string) string { return tt.env[name] }); got != tt.want {
				t.Errorf("address = %s, want %s", got, tt.want)
			}
		})
	}
}

func TestJobOf(t *testing.T) {
	tests := map[string]struct {
		job, restarts string
		want          RunID
		err           string
	}{
		"a job":                  {"4217", "", RunID{4217, 0}, ""},
		"a requeued job":         {"4217", "3", RunID{4217, 3}, ""},
		"no job":                 {"", "", RunID{}, `SLURM_JOB_ID="" is not a job id`},
		"a job id that is none":  {"7_1", "", RunID{}, `SLURM_JOB_ID="7_1" is not a job id`},
		"an id above 32 bits":    {"4294967296", "", RunID{}, `SLURM_JOB_ID="4294967296" is not a job id`},
		"a restart that is none": {"7", "-1", RunID{}, `SLURM_RESTART_COUNT="-1" is not a number`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			env := map[string]string{EnvJobID: tt.job, EnvRestarts: tt.restarts}
			got, err := JobOf(func(name string) string { return env[name] })
			if got != tt.want || (err == nil) != (tt.err == "") || err != nil && err.Error() != tt.err {
				t.Errorf("%+v, %v; want %+v, %s", got, err, tt.want, tt.err)
			}
		})
	}
}

func TestThisJob(t *testing.T) {
	tests := map[string]struct{ job, array, task, want string }{
		"outside of jobs":                     {"", "", "", ""},
		"a job":                               {"9", "", "", "9"},
		"a task of an array":                  {"9", "6", "3", "9"},
		"the last task, with the array's own": {"6", "6", "4", "6_4"},
		"a job inside of an array's task":     {"12", "6", "4", "12"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			env := map[string]string{EnvJobID: tt.job, envArrayJob: tt.array, envArrayTask: tt.task}
			if got := ThisJob(func(name string) string { return env[name] }); got != tt.want {
				t.Errorf("this job is %q, want %q", got, tt.want)
			}
		})
	}
}

func TestFirstNodeOf(t *testing.T) {
	for list, want := range map[string]string{
		"n1": "n1", "n1,n2": "n1", "n[1-2]": "n1", "n[3,5-7]": "n3", "n[007-012],m1": "n007", "login,n[1-2]": "login",
		"rack[2-3]n[04-05]": "rack2n04", "n[9]-ib": "n9-ib", "n[1-2]-ib,m3": "n1-ib",
		"": "", "n[": "", "n[]": "", "n[-1]": "", ",n1": "",
	} {
		got, err := FirstNodeOf(func(string) string { return list })
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q begins with %q (%v), want %q", list, got, err, want)
		}
	}
}

func TestMostTasksOnNode(t *testing.T) {
	for list, want := range map[string]int{"4": 4, "1,3(x2),2": 3, "2(x3),1": 2, "": -1, "2(xy)": -1} {
		got, err := MostTasksOnNode(func(string) string { return list })
		if (err != nil) != (want < 0) || err == nil && got != want {
			t.Errorf("%q: %d, %v; want %d", list, got, err, want)
		}
	}
}
