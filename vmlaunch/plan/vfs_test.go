package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmlaunch/plan/plantest"
)

func TestVFsHaveAddressesAndNames(t *testing.T) {
	hosts, err := plantest.WithVFs(t).VFHosts(3)
	want := []guest.Host{{Name: "vm3-vf0", Address: "172.29.0.7"}, {Name: "vm3-vf1", Address: "172.29.0.8"}}
	if diff := cmp.Diff(want, hosts); diff != "" || err != nil {
		t.Errorf("%v, hosts differ (-want +got):\n%s", err, diff)
	}
}

func TestVFsHaveTheTagsOfTheReservation(t *testing.T) {
	grants := []fabric.Grant{{Kind: fabric.PKey, Tags: []fabric.Tag{0x1001}}, {Kind: fabric.VLAN, Tags: []fabric.Tag{2007}}, {Kind: fabric.VNI, Tags: []fabric.Tag{1024}}}
	tests := map[string]struct {
		grants     []fabric.Grant
		vlan, pkey uint16
	}{
		"every kind":        {grants, 2007, 0x9001},
		"no reservation":    {nil, 0, 0},
		"an empty one":      {[]fabric.Grant{{Kind: fabric.VLAN, Why: fabric.WhyOff}}, 0, 0},
		"without a VLAN":    {grants[:1], 0, 0x9001},
		"VNIs are not VFs'": {grants[2:], 0, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := plantest.Job()
			job.Reservation.Grants = tt.grants
			p := plantest.New(t, config.Default(), job, plan.Hardware{Accel: config.AccelTCG, NUMA: -1})
			if p.VLAN != tt.vlan || p.PKey != tt.pkey {
				t.Errorf("VLAN %d and P_Key %#x, want %d and %#x", p.VLAN, p.PKey, tt.vlan, tt.pkey)
			}
		})
	}
}
