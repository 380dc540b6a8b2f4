package plan_test

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/images/template"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmlaunch/plan/plantest"
)

func TestPlanNumbersVMsThroughTheJob(t *testing.T) {
	p := plantest.Plan(t)
	var got []string
	for _, vm := range p.VMs {
		got = append(got, vm.Name+" "+vm.Domain+" "+vm.Address.String()+" "+vm.MAC)
	}
	want := []string{
		"vm2 slurmv-42.1-vm2 172.30.0.3/16 02:00:00:0a:80:02",
		"vm3 slurmv-42.1-vm3 172.30.0.4/16 02:00:00:0a:80:03",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("VMs differ (-want +got):\n%s", diff)
	}
	if p.VMs[0].UUID == p.VMs[1].UUID {
		t.Error("two VMs have the same UUID")
	}
	if p.State != "/var/lib/slurmv/n2/jobs/42.1" || p.Run != "/run/slurmv/n2/jobs/42.1" {
		t.Errorf("directories are %s and %s", p.State, p.Run)
	}
}

func TestPlanIsTheSameEveryTime(t *testing.T) {
	if diff := cmp.Diff(plantest.Plan(t).VMs[1].UUID, plantest.Plan(t).VMs[1].UUID); diff != "" {
		t.Error(diff)
	}
}

func TestPlanRefusesDevicesThatQEMULacks(t *testing.T) {
	job, hw := plantest.Job(), plan.Hardware{Accel: config.AccelTCG, NUMA: -1}
	job.Spec.IVShmem = jobspec.IVShmem{Devices: 1, SizeMiB: 16}
	if _, err := plan.New(config.Default(), job, owner.Owner{}, hw); err != nil {
		t.Errorf("QEMU has all devices: %v", err)
	}
	hw.Missing.IVShmem, hw.Missing.NVDIMM = true, true
	if _, err := plan.New(config.Default(), job, owner.Owner{}, hw); err == nil || !strings.Contains(err.Error(), "--ivshmem: QEMU on this node has no IVShmem devices") {
		t.Errorf("error = %v", err)
	}
	job.Spec.IVShmem = jobspec.IVShmem{}
	if _, err := plan.New(config.Default(), job, owner.Owner{}, hw); err != nil {
		t.Errorf("the job wants none: %v", err)
	}
}

func TestPlanRefusesAnUnknownNetwork(t *testing.T) {
	job := plantest.Job()
	job.Spec.Network = "fabric"
	_, err := plan.New(config.Default(), job, owner.Owner{}, plan.Hardware{Accel: config.AccelTCG, NUMA: -1})
	if err == nil || !strings.Contains(err.Error(), `"fabric"`) {
		t.Errorf("error = %v", err)
	}
}

// libvirt, which is root, makes a file of variables that is missing. So the owner must not be
// able to remove the file, or to put a link in its place.
func TestVariablesAreOutOfTheOwnersReach(t *testing.T) {
	p := plantest.Plan(t)
	for _, vm := range append(p.VMs, p.TemplateVM(template.Template{Dir: "/s/templates/6001/k"})) {
		if filepath.Dir(vm.Vars) != p.State {
			t.Errorf("%s: %s is not in root's directory %s", vm.Name, vm.Vars, p.State)
		}
	}
	if p.VMs[0].Vars == p.VMs[1].Vars {
		t.Error("two VMs have the same variables")
	}
}
