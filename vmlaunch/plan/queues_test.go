package plan_test

import (
	"testing"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmlaunch/plan/plantest"
)

func TestQueues(t *testing.T) {
	tests := map[string]struct {
		hw    plan.Hardware
		vcpus int
		want  int
	}{
		"emulated":                 {plan.Hardware{Accel: config.AccelTCG, Vhost: true}, 4, 1},
		"with KVM, without vhost":  {plan.Hardware{Accel: config.AccelKVM}, 4, 1},
		"with vhost":               {plan.Hardware{Accel: config.AccelKVM, Vhost: true}, 4, 4},
		"with vhost, of one CPU":   {plan.Hardware{Accel: config.AccelKVM, Vhost: true}, 1, 1},
		"with vhost, of many CPUs": {plan.Hardware{Accel: config.AccelKVM, Vhost: true}, 100, 8},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := plantest.Job()
			job.Spec.VCPUs = tt.vcpus
			tt.hw.NUMA = -1
			if got := plantest.New(t, config.Default(), job, tt.hw).Queues(); got != tt.want {
				t.Errorf("%d queues, want %d", got, tt.want)
			}
		})
	}
}
