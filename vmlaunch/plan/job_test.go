package plan_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmlaunch/plan/plantest"
)

func TestAdmit(t *testing.T) {
	tests := map[string]struct {
		change func(*plan.Job)
		want   string
	}{
		"accepts what fits":                    {change: func(*plan.Job) {}},
		"accepts where memory is not managed":  {change: func(j *plan.Job) { j.Memory = 0; j.Spec.MemoryMiB = 4096 }},
		"refuses more CPUs than the job has":   {change: func(j *plan.Job) { j.CPUs = 3 }, want: "2 VMs × 2 CPUs need 4; the job has 3 on node n2"},
		"refuses more memory than the job has": {change: func(j *plan.Job) { j.Memory = 1535 }, want: "2 VMs × 768 MiB of memory need 1536; the job has 1535 on node n2"},
		"accepts shared memory that fits":      {change: func(j *plan.Job) { j.Spec.IVShmem = jobspec.IVShmem{Devices: 2, SizeMiB: 256} }},
		"refuses shared memory beside":         {change: func(j *plan.Job) { j.Memory = 1599; j.Spec.IVShmem = jobspec.IVShmem{Devices: 2, SizeMiB: 32} }, want: "2 VMs × 768 MiB of memory, and 64 that they share, need 1600; the job has 1599 on node n2"},
		"refuses a spec beyond the limits":     {change: func(j *plan.Job) { j.Spec.VMsPerNode = 1 << 20 }, want: "vm-per-node"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := plantest.Job()
			tt.change(&job)
			err := job.Admit(config.Default())
			if (err != nil) != (tt.want != "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
		})
	}
}

// Where Slurm counts VFs, a job has no more of them than it was given.
func TestAdmitCountsVFs(t *testing.T) {
	cfg := config.Default()
	cfg.Slurm.GRES = true
	tests := map[string]struct {
		vfs  int
		mbps uint32
		want string
	}{
		"accepts what fits":                       {4, 200, ""},
		"refuses more VFs than the job has":       {3, 200, "2 VMs × 2 VFs (gres/vf) need 4; the job has 3"},
		"refuses more bandwidth than the job has": {4, 199, "2 VMs × 100 Mb/s of VF bandwidth (gres/vfbw) need 200; the job has 199"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := plantest.Job()
			job.Spec.SRIOV.VFs = []jobspec.VF{{MinMbps: 100}, {}}
			job.VFs, job.VFMbps = tt.vfs, tt.mbps
			err := job.Admit(cfg)
			if (err != nil) != (tt.want != "") || err != nil && (!errors.Is(err, plan.ErrBeyondAllocation) || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
		})
	}
}
