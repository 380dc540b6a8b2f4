package entitle

import (
	"testing"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

func TestVFsNeedTheTagsOfTheSite(t *testing.T) {
	vlans := config.Fabric{VLAN: config.VLANPool{Pool: config.Tags{{First: 2000, Last: 2999}}}}
	pkeys := config.Fabric{PKey: config.PKeyPool{Pool: config.Tags{{First: 0x1000, Last: 0x1fff}}}}
	id := journal.ID{Job: 7}
	with := func(grants ...fabric.Grant) fabric.Reservation { return fabric.Reservation{Job: id, Grants: grants} }
	vlan := fabric.Grant{Kind: fabric.VLAN, Tags: []fabric.Tag{2001}}
	// A P_Key for all VMs of the job, as many as there are on its two nodes.
	pkey := func(vms, vfs int) fabric.Reservation {
		r := with(fabric.Grant{Kind: fabric.PKey, Tags: []fabric.Tag{0x1001}})
		r.VMs, r.VFs = vms, vfs
		return r
	}
	const changed = ": its options have changed since it was submitted; submit it again"
	const none = "it has no reservation: it was submitted without the plugin, or the administrator has not set PrologSlurmctld and EpilogSlurmctld in slurm.conf, as docs/fabric.md says"
	tests := map[string]struct {
		cfg         config.Fabric
		reservation fabric.Reservation
		vfs         int
		want        string // "" for nothing
	}{
		"a VLAN":                                  {vlans, with(vlan), 1, ""},
		"no VFs":                                  {vlans, fabric.Reservation{}, 0, ""},
		"a site without pools":                    {config.Fabric{}, fabric.Reservation{}, 1, ""},
		"no reservation":                          {vlans, fabric.Reservation{}, 1, "job 7 has no VLAN for its virtual functions: " + none},
		"no reservation where VFs have P_Keys":    {pkeys, fabric.Reservation{}, 1, "job 7 has no P_Key for its virtual functions: " + none},
		"a VLAN where VFs have P_Keys":            {pkeys, with(vlan, fabric.Grant{Kind: fabric.PKey, Why: "none is free"}), 1, "job 7 has no P_Key for its virtual functions: none is free"},
		"a user who wants none":                   {vlans, with(fabric.Grant{Kind: fabric.VLAN, Why: fabric.WhyOff}), 1, "job 7 has no VLAN for its virtual functions: disabled by user request"},
		"a partition whose jobs have no VLANs":    {vlans, with(fabric.Grant{Kind: fabric.VNI, Tags: []fabric.Tag{1024}}), 1, ""},
		"one that has none of it, and no VFs too": {vlans, with(fabric.Grant{Kind: fabric.VLAN, Why: fabric.WhyOff}), 0, ""},
		"a P_Key for all VFs":                     {pkeys, pkey(6, 2), 2, ""},
		"a P_Key for more VFs":                    {pkeys, pkey(8, 4), 2, ""},
		"a P_Key for fewer VFs":                   {pkeys, pkey(6, 1), 2, "job 7 has a P_Key for 6 VMs with 1 virtual functions each, and asks for 6 VMs with 2" + changed},
		"a P_Key for fewer VMs":                   {pkeys, pkey(5, 2), 2, "job 7 has a P_Key for 5 VMs with 2 virtual functions each, and asks for 6 VMs with 2" + changed},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := plan.Job{ID: id, Nodes: 2, Reservation: tt.reservation}
			job.Spec.VMsPerNode = 3
			job.Spec.SRIOV.VFs = make([]jobspec.VF, tt.vfs)
			err := refuseBare(tt.cfg, job)
			if (err == nil) != (tt.want == "") || err != nil && err.Error() != tt.want {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
		})
	}
}
