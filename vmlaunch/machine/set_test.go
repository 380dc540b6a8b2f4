package machine

import (
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/vmlaunch/hypervisor"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmlaunch/plan/plantest"
)

func TestANodeTellsOnWhichCPUsItsVMsRun(t *testing.T) {
	pinned := NewSet(plantest.On(t, plan.Hardware{CPUs: plantest.CPUs(1, 5)}, 2), StartStopwatch(time.Time{}), nil).Describe()
	if vm := pinned.VMs[1]; vm.CPUs != "2-3" || vm.EmulatorCPUs != "4" || pinned.Unpinned != "" {
		t.Errorf("%+v, because %q", vm, pinned.Unpinned)
	}
	unpinned := NewSet(plantest.On(t, plan.Hardware{Unpinned: "nobody owns cores"}, 2), StartStopwatch(time.Time{}), nil).Describe()
	if vm := unpinned.VMs[1]; vm.CPUs != "" || vm.EmulatorCPUs != "" || unpinned.Unpinned != "nobody owns cores" {
		t.Errorf("%+v, because %q", vm, unpinned.Unpinned)
	}
}

// What the job's cgroup has killed says nothing of a QEMU that is in another.
func TestWhyAQEMUEnded(t *testing.T) {
	const usedUp = hypervisor.QEMUEnded + " (the job's memory is used up)"
	for name, tt := range map[string]struct {
		reason string
		on     plan.Hardware
		killed bool
		want   string
	}{
		"killed for lack of memory":          {hypervisor.QEMUEnded, plan.Hardware{}, true, usedUp},
		"killed otherwise":                   {hypervisor.QEMUEnded, plan.Hardware{}, false, hypervisor.QEMUEnded},
		"a guest that ended itself":          {"shut down", plan.Hardware{}, true, "shut down"},
		"nova's, beside programs of the job": {hypervisor.QEMUEnded, plan.Hardware{Foreign: true}, true, hypervisor.QEMUEnded},
	} {
		if got := withCause(tt.reason, tt.on, func() bool { return tt.killed }); got != tt.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}
