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

func TestAPICIDs(t *testing.T) {
	tests := map[string]struct {
		lies plan.Topology
		want int
	}{
		"one CPU":                         {plan.Topology{Sockets: 1, Cores: 1, Threads: 1}, 1},
		"one socket has no gaps":          {plan.Topology{Sockets: 1, Cores: 255, Threads: 1}, 255},
		"one CPU more":                    {plan.Topology{Sockets: 1, Cores: 256, Threads: 1}, 256},
		"powers of two have no gaps":      {plan.Topology{Sockets: 2, Cores: 64, Threads: 2}, 256},
		"gaps behind each socket":         {plan.Topology{Sockets: 3, Cores: 65, Threads: 1}, 2*128 + 65},
		"gaps behind each core":           {plan.Topology{Sockets: 1, Cores: 2, Threads: 3}, 7},
		"one socket with hyper-threads":   {plan.Topology{Sockets: 1, Cores: 96, Threads: 2}, 192},
		"a large machine of two sockets":  {plan.Topology{Sockets: 2, Cores: 96, Threads: 2}, 256 + 192},
		"a large machine of four sockets": {plan.Topology{Sockets: 4, Cores: 60, Threads: 2}, 3*128 + 120},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.lies.APICIDs(); got != tt.want {
				t.Errorf("%d ids, want %d", got, tt.want)
			}
		})
	}
}

// An emulated machine has no interrupt remapping, and so no topology that needs it.
func TestTopologyOfEmulatedVMs(t *testing.T) {
	job := plantest.Job()
	job.Spec.VMsPerNode, job.Spec.VCPUs, job.CPUs = 1, 195, 195
	cpus := plantest.CPUs(1, 65, 65, 65)
	for accel, want := range map[config.Accel]plan.Topology{
		config.AccelKVM: {Sockets: 3, Cores: 65, Threads: 1},
		config.AccelTCG: {Sockets: 1, Cores: 195, Threads: 1},
	} {
		p := plantest.New(t, config.Default(), job, plan.Hardware{Accel: accel, NUMA: -1, CPUs: cpus})
		if got := p.Topology(p.VMs[0]); got != want {
			t.Errorf("%s: %+v, want %+v", accel, got, want)
		}
	}
}

func TestEmulatedVMsHaveFewCPUs(t *testing.T) {
	tests := map[string]struct {
		accel config.Accel
		vcpus int
		want  string
	}{
		"emulated":           {config.AccelTCG, 255, ""},
		"emulated, too many": {config.AccelTCG, 256, "--vcpu-per-vm: 256 is not possible on this node, which has no KVM: an emulated VM has 255 CPUs at most"},
		"with KVM":           {config.AccelKVM, 256, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := plantest.Job()
			job.Spec.VCPUs = tt.vcpus
			_, err := plan.New(config.Default(), job, plantest.Account, plan.Hardware{Accel: tt.accel, NUMA: -1})
			if (err == nil) != (tt.want == "") || err != nil && err.Error() != tt.want {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
		})
	}
}
