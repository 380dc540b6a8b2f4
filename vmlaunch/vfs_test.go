package vmlaunch

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vfpool"
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
	if diff := cmp.Diff(want, vfDemand(plantest.WithVFs(t))); diff != "" {
		t.Errorf("demand differs (-want +got):\n%s", diff)
	}
}
