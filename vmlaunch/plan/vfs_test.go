package plan_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/vmlaunch/plan/plantest"
)

func TestVFsHaveAddressesAndNames(t *testing.T) {
	hosts, err := plantest.WithVFs(t).VFHosts(3)
	want := []guest.Host{{Name: "vm3-vf0", Address: "172.29.0.7"}, {Name: "vm3-vf1", Address: "172.29.0.8"}}
	if diff := cmp.Diff(want, hosts); diff != "" || err != nil {
		t.Errorf("%v, hosts differ (-want +got):\n%s", err, diff)
	}
}
