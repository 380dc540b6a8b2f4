package vmstep

import (
	"strings"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/jobspec"
)

func TestJobFromEnv(t *testing.T) {
	base := map[string]string{"SLURM_JOB_ID": "4217", "SLURM_JOB_NUM_NODES": "2", "SLURM_JOB_NODELIST": "n[1-2]", SpecVariable: jobspec.Spec{VMsPerNode: 3, VCPUs: 8, ReadyTimeout: time.Minute, IVShmem: jobspec.IVShmem{Devices: 3, SizeMiB: 16}, Nonce: "AB27"}.Encode()}
	tests := map[string]struct {
		change map[string]string
		want   Job
		err    string
	}{
		"a job":                   {want: Job{4217, 0, 2, "n1", 6, 8, 3, time.Minute, "AB27"}},
		"a requeued job":          {change: map[string]string{"SLURM_RESTART_COUNT": "3"}, want: Job{4217, 3, 2, "n1", 6, 8, 3, time.Minute, "AB27"}},
		"under salloc":            {change: map[string]string{"SLURM_JOB_NUM_NODES": "", "SLURM_NNODES": "4"}, want: Job{4217, 0, 4, "n1", 12, 8, 3, time.Minute, "AB27"}},
		"an odd request":          {change: map[string]string{SpecVariable: "?"}, want: Job{4217, 0, 2, "n1", 0, 0, 0, 0, ""}},
		"no job":                  {change: map[string]string{"SLURM_JOB_ID": ""}, err: "salloc --vm-per-node=N"},
		"no VMs":                  {change: map[string]string{SpecVariable: ""}, err: "job 4217 has no VMs"},
		"a heterogeneous job":     {change: map[string]string{"SLURM_HET_SIZE": "2"}, err: "heterogeneous"},
		"a job id that is none":   {change: map[string]string{"SLURM_JOB_ID": "7_1"}, err: "not a job id"},
		"a restart that is none":  {change: map[string]string{"SLURM_RESTART_COUNT": "-1"}, err: "not a number"},
		"no nodes":                {change: map[string]string{"SLURM_JOB_NUM_NODES": ""}, err: "not a number of nodes"},
		"nodes that are none":     {change: map[string]string{"SLURM_JOB_NUM_NODES": "0"}, err: "not a number of nodes"},
		"no list of nodes":        {change: map[string]string{"SLURM_JOB_NODELIST": ""}, err: `SLURM_JOB_NODELIST="" is no list of nodes`},
		"an id above 32 bits too": {change: map[string]string{"SLURM_JOB_ID": "4294967296"}, err: "not a job id"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			env := func(name string) string {
				if value, ok := tt.change[name]; ok {
					return value
				}
				return base[name]
			}
			got, err := JobFromEnv(env)
			switch {
			case tt.err == "" && err != nil:
				t.Fatal(err)
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
				t.Fatalf("error = %v, want one with %q", err, tt.err)
			case got != tt.want:
				t.Errorf("job = %v, want %v", got, tt.want)
			}
		})
	}
}

func TestJobString(t *testing.T) {
	if got := (Job{ID: 4217, Restart: 1}).String(); got != "4217.1" {
		t.Errorf("job = %q", got)
	}
}
