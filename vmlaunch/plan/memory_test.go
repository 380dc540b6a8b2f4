package plan_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/hugepages"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmlaunch/plan/plantest"
)

func TestPageSizes(t *testing.T) {
	const small, large = 2 << 10, 1 << 20
	tests := map[string]struct {
		vfs    int
		memory int64
		change func(*config.Config, *jobspec.Spec)
		want   []uint
	}{
		"without VFs":               {0, 2048, func(*config.Config, *jobspec.Spec) {}, nil},
		"with VFs":                  {1, 2048, func(*config.Config, *jobspec.Spec) {}, []uint{large, small}},
		"no whole number of 1G":     {1, 1536, func(*config.Config, *jobspec.Spec) {}, []uint{small}},
		"no whole number of either": {1, 1535, func(*config.Config, *jobspec.Spec) {}, nil},
		"asked for":                 {0, 2048, func(_ *config.Config, s *jobspec.Spec) { s.HugePages = config.HugePages2M }, []uint{small}},
		"asked for, with VFs":       {1, 2048, func(_ *config.Config, s *jobspec.Spec) { s.HugePages = config.HugePages2M }, []uint{small}},
		"not wanted":                {1, 2048, func(_ *config.Config, s *jobspec.Spec) { s.HugePages = config.HugePagesNo }, nil},
		"a template is wanted":      {1, 2048, func(_ *config.Config, s *jobspec.Spec) { s.Start = config.StartWarm }, nil},
		"one size is forbidden":     {1, 2048, func(c *config.Config, _ *jobspec.Spec) { c.Limits.HugePages = []config.HugePages{config.HugePages2M} }, []uint{small}},
		"all are forbidden":         {1, 2048, func(c *config.Config, _ *jobspec.Spec) { c.Limits.HugePages = nil }, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg, job := config.Default(), plantest.Job()
			job.Spec.MemoryMiB, job.Spec.SRIOV.VFs = tt.memory, make([]jobspec.VF, tt.vfs)
			tt.change(&cfg, &job.Spec)
			if diff := cmp.Diff(tt.want, plantest.New(t, cfg, job, plan.Hardware{NUMA: -1}).PageSizes); diff != "" {
				t.Errorf("sizes differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPagesOfVMs(t *testing.T) {
	tests := map[string]struct {
		cpus   []plan.CPU
		memory []int
		want   []hugepages.Need // of the first VM
	}{
		"not pinned":            {nil, []int{0, 1}, []hugepages.Need{{KiB: 2048, NUMA: -1, Pages: 256}}},
		"one NUMA node":         {plantest.CPUs(1, 4), []int{0}, []hugepages.Need{{KiB: 2048, NUMA: -1, Pages: 256}}},
		"on one of two":         {plantest.CPUs(1, 2, 2), []int{0, 1}, []hugepages.Need{{KiB: 2048, NUMA: 0, Pages: 256}}},
		"across two":            {plantest.CPUs(1, 1, 1, 1, 1), []int{0, 1, 2, 3}, []hugepages.Need{{KiB: 2048, NUMA: 0, Pages: 128}, {KiB: 2048, NUMA: 1, Pages: 128}}},
		"a node without memory": {plantest.CPUs(1, 2, 2), []int{1}, []hugepages.Need{{KiB: 2048, NUMA: -1, Pages: 256}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := plantest.New(t, config.Default(), plantest.Job(), plan.Hardware{NUMA: -1, CPUs: tt.cpus, Memory: tt.memory}).OnPages(2048)
			if diff := cmp.Diff(tt.want, p.Pages(p.VMs[0])); diff != "" {
				t.Errorf("pages differ (-want +got):\n%s", diff)
			}
			if !strings.Contains(p.Cold, "huge pages") {
				t.Errorf("the VMs could be restored from a template; reason %q", p.Cold)
			}
		})
	}
}
