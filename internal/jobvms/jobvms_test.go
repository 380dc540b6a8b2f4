package jobvms

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmstep"
)

func TestParseTarget(t *testing.T) {
	tests := map[string]struct {
		text string
		job  string // in which slurmv runs
		task string // of that array, if it is one
		want string // "" if an error is expected
	}{
		"a job is its first VM":          {text: "4217", want: "4217/vm0"},
		"a VM by its name":               {text: "4217/vm3", want: "4217/vm3"},
		"a VM by its number":             {text: "4217/3", want: "4217/vm3"},
		"a task of an array":             {text: "4217_2/1", want: "4217_2/vm1"},
		"a VM of this job":               {text: "/vm1", job: "9", want: "9/vm1"},
		"this job":                       {text: "", job: "9", want: "9/vm0"},
		"a VM of an array's last task":   {text: "/vm1", job: "9", task: "4", want: "9_4/vm1"},
		"an array's last task":           {text: "", job: "9", task: "4", want: "9_4/vm0"},
		"another job than this":          {text: "8", job: "9", want: "8/vm0"},
		"no job at all":                  {text: ""},
		"a VM of no job":                 {text: "/vm1"},
		"no number":                      {text: "all"},
		"an option":                      {text: "-1"},
		"words of a shell":               {text: "1;reboot"},
		"a VM that is none":              {text: "1/eth0"},
		"a step":                         {text: "1.0"},
		"more than one slash":            {text: "1/2/3"},
		"a number that is too large":     {text: "99999999999"},
		"a line end behind what is good": {text: "1/vm0\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			env := map[string]string{slurm.EnvJobID: tt.job}
			if tt.task != "" {
				env["SLURM_ARRAY_JOB_ID"], env["SLURM_ARRAY_TASK_ID"] = tt.job, tt.task
			}
			got, err := ParseTarget(tt.text, func(name string) string { return env[name] })
			if tt.want == "" {
				var usage *vmstep.UsageError
				if !errors.As(err, &usage) {
					t.Fatalf("%v, %v; want a usage error", got, err)
				}
				return
			}
			if err != nil || got.String() != tt.want {
				t.Errorf("%v, %v; want %s", got, err, tt.want)
			}
		})
	}
}

func TestStepEnvironmentIsFreeOfTheJobAround(t *testing.T) {
	got := stepEnv([]string{"PATH=/bin", "SLURM_JOB_ID=1", "SLURM_JOBID=1", "SLURM_RESTART_COUNT=4", "SLURM_NTASKS=8", "SLURM_CONF=/c",
		"SLURM_SPANK_SLURMV_SPEC={}", "_SLURM_SPANK_OPTION_slurmv_sriov=1", "SLURM_EXPORT_ENV=NONE"}, slurm.StepJob{ID: 7, Restart: 2})
	if diff := cmp.Diff([]string{"PATH=/bin", "SLURM_CONF=/c", "SLURM_RESTART_COUNT=2"}, got); diff != "" {
		t.Errorf("environment differs (-want +got):\n%s", diff)
	}
}

func TestAge(t *testing.T) {
	tests := map[int64]string{0: "0s", 59: "59s", 61: "1m1s", 3600: "1h0m", 86399: "23h59m", 90000: "1d1h"}
	for seconds, want := range tests {
		if got := age(seconds); got != want {
			t.Errorf("%d: %s, want %s", seconds, got, want)
		}
	}
}
