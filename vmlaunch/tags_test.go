package vmlaunch

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/cxi"
	"github.com/slurm-v/slurm-v/fabric/node"
	"github.com/slurm-v/slurm-v/vfpool"
	"github.com/slurm-v/slurm-v/vfpool/device"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// slingshot makes a sysfs with two cards.
func slingshot(t *testing.T) (sysfs string) {
	t.Helper()
	sysfs = t.TempDir()
	for card, pci := range map[string]string{"cxi0": "0000:01:00.0", "cxi1": "0000:02:00.0"} {
		device, class := filepath.Join(sysfs, "devices", pci), filepath.Join(sysfs, "class/cxi", card)
		for _, dir := range []string{device, class} {
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Symlink(device, filepath.Join(class, "device")); err != nil {
			t.Fatal(err)
		}
	}
	return sysfs
}

// A VM has a VF of the node's second card and one of software. Its device is the guest's
// cxi0, and its service is that of the second card.
func TestProgramsInVMsKnowTheirTagsAndVFs(t *testing.T) {
	m := &machine.Machine{Plan: plan.VM{Name: "vm2"}, VFs: []vfpool.Grant{
		{VF: device.VF{PF: "soft0", Index: 1}},
		{Request: vfpool.VFRequest{Index: 1}, VF: device.VF{PF: "hsn1", Index: 3, PCI: "0000:02:00.4"}, Slingshot: "0000:02:00.0"},
	}}
	v := &VMs{Set: &machine.Set{Machines: []*machine.Machine{m}}, store: store{sysfs: slingshot(t)}, tags: node.Tags{
		Reservation: fabric.Reservation{UID: 1000, Grants: []fabric.Grant{{Kind: fabric.VNI, Tags: []fabric.Tag{1027}}}},
	}}
	v.tags.Reservation.Job.Job = 4217
	for i, card := range []string{"cxi0", "cxi1"} {
		v.tags.Services = append(v.tags.Services, cxi.Placed{Card: card, Service: cxi.Service{
			ID: uint32(11 + i), Members: []cxi.Member{{Kind: cxi.UID, ID: 1000}}, VNIs: []fabric.Tag{1027},
		}})
	}
	got := v.environment(m, []string{"SLURMV_VFS=forged", "SLINGSHOT_DEVICES=cxi0,cxi1"})
	for _, entry := range []string{"SLURMV_VFS=vm2:0=soft0/1,vm2:1=hsn1/3/0000:02:00.4", "SLINGSHOT_DEVICES=cxi0", "SLINGSHOT_SVC_IDS=12", "SLURMV_VNIS=1027"} {
		if !slices.Contains(got, entry) {
			t.Errorf("%s is missing in %q", entry, got)
		}
	}
	if slices.Contains(got, "SLURMV_VFS=forged") || slices.Contains(got, "SLINGSHOT_DEVICES=cxi0,cxi1") {
		t.Errorf("what the relay sends is left: %q", got)
	}
	bare := &VMs{Set: &machine.Set{Machines: []*machine.Machine{{}}}}
	if got := bare.environment(bare.Machines[0], []string{"A=1"}); !slices.Equal(got, []string{"A=1"}) {
		t.Errorf("a job without tags and VFs has %q", got)
	}
}
