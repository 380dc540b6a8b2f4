package plan_test

import (
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmlaunch/plan/plantest"
)

func TestCold(t *testing.T) {
	tests := map[string]struct {
		change func(*plan.Job, *plan.Hardware)
		want   string
	}{
		"nothing":    {func(*plan.Job, *plan.Hardware) {}, ""},
		"OpenStack":  {func(_ *plan.Job, hw *plan.Hardware) { hw.Foreign = true }, "OpenStack makes the VMs of this node"},
		"huge pages": {func(j *plan.Job, _ *plan.Hardware) { j.Spec.HugePages = config.HugePages2M }, "--vm-hugepages"},
		"two NUMA nodes": {func(_ *plan.Job, hw *plan.Hardware) {
			hw.CPUs = plantest.CPUs(1, 1, 3)
		}, "NUMA"},
		"one for each VM": {func(_ *plan.Job, hw *plan.Hardware) {
			hw.CPUs = plantest.CPUs(1, 2, 2)
		}, ""},
		"whole cores for each VM": {func(_ *plan.Job, hw *plan.Hardware) {
			hw.CPUs = plantest.CPUs(2, 2)
		}, ""},
		"a whole core for one VM, parts of two for the other": {func(_ *plan.Job, hw *plan.Hardware) {
			hw.CPUs = append(plantest.CPUs(1, 3), plan.CPU{Number: 3, Core: 0, NUMA: -1})
		}, "hyper-threads"},
		"much shared": {func(j *plan.Job, _ *plan.Hardware) {
			j.Spec.IVShmem = jobspec.IVShmem{Devices: 4, SizeMiB: 8 << 10}
		}, "address space"},
		"some shared": {func(j *plan.Job, _ *plan.Hardware) {
			j.Spec.IVShmem = jobspec.IVShmem{Devices: 4, SizeMiB: 16}
		}, ""},
		"user data":       {func(j *plan.Job, _ *plan.Hardware) { j.Spec.UserData = "/u" }, "--vm-user-data"},
		"too many mounts": {func(j *plan.Job, _ *plan.Hardware) { j.Spec.Mounts = make([]jobspec.Mount, 5) }, "5 mounts"},
		"as many as can":  {func(j *plan.Job, _ *plan.Hardware) { j.Spec.Mounts = make([]jobspec.Mount, 4) }, ""},
		"too many VFs":    {func(j *plan.Job, _ *plan.Hardware) { j.Spec.SRIOV.VFs = make([]jobspec.VF, 5) }, "5 virtual functions"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job, hw := plantest.Job(), plan.Hardware{Accel: config.AccelTCG, NUMA: -1, Unpinned: "nobody owns cores"}
			tt.change(&job, &hw)
			if len(hw.CPUs) > 0 {
				hw.Unpinned = ""
			}
			if got := plantest.New(t, config.Default(), job, hw).Cold; (got == "") != (tt.want == "") || !strings.Contains(got, tt.want) {
				t.Errorf("%q, want %q in it", got, tt.want)
			}
		})
	}
}
