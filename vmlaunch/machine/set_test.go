package machine

import (
	"testing"
	"time"

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
