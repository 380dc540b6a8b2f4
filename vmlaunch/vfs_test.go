package vmlaunch

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vfpool"
	"github.com/slurm-v/slurm-v/vfpool/device"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmlaunch/plan/plantest"
)

func TestClaimIsOfAllVMsOfTheNode(t *testing.T) {
	want := vfpool.Demand{
		Job: journal.ID{Job: 42, Restart: 1}, VLAN: 2042, Owner: owner.IDs{UID: 6001, GID: 6001},
		Requests: []vfpool.VFRequest{
			{VM: 0, Index: 0, NUMA: 1, MAC: "06:00:00:0a:80:02", VF: jobspec.VF{MinMbps: 100}},
			{VM: 0, Index: 1, NUMA: 1, MAC: "0a:00:00:0a:80:02"},
			{VM: 1, Index: 0, NUMA: 1, MAC: "06:00:00:0a:80:03", VF: jobspec.VF{MinMbps: 100}},
			{VM: 1, Index: 1, NUMA: 1, MAC: "0a:00:00:0a:80:03"},
		},
	}
	for i, digits := range []string{"80", "81", "c0", "c1"} { // VMs 2 and 3 of the job
		want.Requests[i].NodeGUID, want.Requests[i].PortGUID = "02:60:00:00:02:a0:00:"+digits, "02:50:00:00:02:a0:00:"+digits
	}
	if diff := cmp.Diff(want, vfDemand(plantest.WithVFs(t))); diff != "" {
		t.Errorf("demand differs (-want +got):\n%s", diff)
	}
}

func TestThePKeyIsOfThePlan(t *testing.T) {
	p := plantest.WithVFs(t)
	p.PKey = 0x9004
	if d := vfDemand(p); d.PKey != 0x9004 || d.VLAN != 2042 {
		t.Errorf("the demand has P_Key %#x and VLAN %d", d.PKey, d.VLAN)
	}
}

// The guest looks for what its VFs have got, and for nothing that cannot be there.
func TestGuestsFindTheirVFs(t *testing.T) {
	vm := plantest.WithVFs(t).VMs[1]
	ethernet := device.Settings{MAC: vm.VFs[0].MAC}
	ib := device.Settings{PortGUID: vm.VFs[1].GUIDs.Port, NodeGUID: vm.VFs[1].GUIDs.Node}
	grants := func(s ...device.Settings) (g []vfpool.Grant) {
		for i, s := range s {
			g = append(g, vfpool.Grant{Request: vfpool.VFRequest{VM: 1, Index: i}, Settings: s})
		}
		return g
	}
	tests := map[string]struct {
		vm     plan.VM
		grants []vfpool.Grant
		want   []guest.NIC
	}{
		"Ethernet and InfiniBand": {vm, grants(ethernet, ib), []guest.NIC{
			{MAC: "06:00:00:0a:80:03", Address: "172.29.0.7/16"},
			{GUID: "02:50:00:00:02:a0:00:c1", Address: "172.29.0.8/16"},
		}},
		"a VF without a name":   {vm, grants(device.Settings{}, ib), []guest.NIC{{GUID: "02:50:00:00:02:a0:00:c1", Address: "172.29.0.8/16"}}},
		"VFs without addresses": {plan.VM{VFs: make([]plan.VF, 2)}, grants(ethernet, ib), nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, vfNICs(tt.vm, tt.grants)); diff != "" {
				t.Errorf("NICs differ (-want +got):\n%s", diff)
			}
		})
	}
}
