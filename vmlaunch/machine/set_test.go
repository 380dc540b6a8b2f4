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
		said   string
		want   string
	}{
		"killed for lack of memory":          {hypervisor.QEMUEnded, plan.Hardware{}, true, "words", usedUp},
		"killed otherwise":                   {hypervisor.QEMUEnded, plan.Hardware{}, false, "", hypervisor.QEMUEnded},
		"by itself":                          {hypervisor.QEMUEnded, plan.Hardware{}, false, "Bail out!", hypervisor.QEMUEnded + `; its log ends with "Bail out!"`},
		"a guest that ended itself":          {"shut down", plan.Hardware{}, true, "words", "shut down"},
		"nova's, beside programs of the job": {hypervisor.QEMUEnded, plan.Hardware{Foreign: true}, true, "words", hypervisor.QEMUEnded},
	} {
		if got := withCause(tt.reason, tt.on, func() bool { return tt.killed }, func() string { return tt.said }); got != tt.want {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// A job that cannot have a template boots its VMs, or says why it cannot. So the end of the template's VM is not the job's.
func TestATemplatesVMEndsWithoutTheJob(t *testing.T) {
	s := NewSet(plantest.On(t, plan.Hardware{}, 1), StartStopwatch(time.Time{}), nil)
	m := New(plan.VM{Name: "template", UUID: "5d1f7f3e-0000-4000-8000-000000000001"}, s.Trace)
	defer s.WatchTemplate(m)()
	s.Stopped(m.Plan.UUID, "powered itself off")
	if !closed(m.Ended()) || m.StopReason() != "powered itself off" {
		t.Errorf("nobody has noticed the end of the template's VM: %q", m.StopReason())
	}
	if closed(s.Gone()) || s.Failure() != nil {
		t.Errorf("the job ends: %v", s.Failure())
	}
	s.Stopped(s.Machines[0].Plan.UUID, "powered itself off")
	if !closed(s.Gone()) {
		t.Error("nobody has noticed the end of the job's own VM")
	}
}

func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
