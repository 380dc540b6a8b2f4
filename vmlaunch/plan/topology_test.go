package plan_test

import (
	"testing"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmlaunch/plan/plantest"
)

func TestTopology(t *testing.T) {
	tests := map[string]struct {
		cpus  []plan.CPU
		vcpus int
		want  plan.Topology
	}{
		"that is not pinned":              {nil, 6, plan.Topology{Sockets: 1, Cores: 6, Threads: 1}},
		"of cores without hyper-threads":  {plantest.CPUs(1, 4), 4, plan.Topology{Sockets: 1, Cores: 4, Threads: 1}},
		"of cores with hyper-threads":     {plantest.CPUs(2, 2), 4, plan.Topology{Sockets: 1, Cores: 2, Threads: 2}},
		"of one and a half cores":         {plantest.CPUs(2, 2), 3, plan.Topology{Sockets: 1, Cores: 3, Threads: 1}},
		"of two NUMA nodes":               {plantest.CPUs(1, 2, 2), 4, plan.Topology{Sockets: 2, Cores: 2, Threads: 1}},
		"of two nodes with hyper-threads": {plantest.CPUs(2, 2, 2), 8, plan.Topology{Sockets: 2, Cores: 2, Threads: 2}},
		"of two nodes that are unequal":   {plantest.CPUs(1, 3, 1), 4, plan.Topology{Sockets: 1, Cores: 4, Threads: 1}},
		"of one vCPU":                     {plantest.CPUs(2, 1), 1, plan.Topology{Sockets: 1, Cores: 1, Threads: 1}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := plantest.Job()
			job.Spec.VMsPerNode, job.Spec.VCPUs, job.CPUs = 1, tt.vcpus, tt.vcpus
			hw := plan.Hardware{Accel: config.AccelTCG, NUMA: -1, CPUs: tt.cpus}
			if tt.cpus == nil {
				hw.Unpinned = "nobody owns cores"
			}
			p := plantest.New(t, config.Default(), job, hw)
			if got := p.Topology(p.VMs[0]); got != tt.want {
				t.Errorf("%+v, want %+v (pinned to %v)", got, tt.want, p.VMs[0].Pinning.CPUs())
			}
		})
	}
}
