package check

import (
	"strings"
	"testing"
)

func TestLicences(t *testing.T) {
	const one = "[slurm]\nresources = \"job_submit\"\n" + goodFabric + "[fabric.vlan]\npool = \"100\"\n"
	tests := map[string]struct {
		on, licences string
		status       Status
		seen, advice string
	}{
		"that Slurm does not count":      {"false", "matlab:2", "", "", ""},
		"fewer than tags":                {"true", "matlab:2,slurmv_vni:900,slurmv_vlan:0", OK, "slurmv_vlan:0 of 1, slurmv_vni:900 of 1000", ""},
		"one fewer":                      {"true", "slurmv_vlan:0;slurmv_vni:999", OK, "slurmv_vlan:0 of 1, slurmv_vni:999 of 1000", ""},
		"as many as tags":                {"true", "slurmv_vlan:0,slurmv_vni:1000", Warning, "Slurm counts 1000 slurmv_vni, and the pool has 1000, of which some cool", "set slurmv_vni:950 "},
		"more than tags":                 {"true", "slurmv_vlan:0,slurmv_vni:64512", Warning, "Slurm counts 64512 slurmv_vni, and the pool has 1000, of which some cool", "set slurmv_vni:950 "},
		"one without a number":           {"true", "slurmv_vlan,slurmv_vni:9", OK, "slurmv_vlan:1 of 1, slurmv_vni:9 of 1000", ""},
		"of another name":                {"true", "slurmv_vlan:0,slurmv_vnis:9", Error, "Slurm does not count slurmv_vni, of which the pool has 1000", "add slurmv_vni:950 "},
		"none":                           {"true", "(null)", Error, "Slurm does not count slurmv_vlan, of which the pool has 1", "add slurmv_vlan:1 "},
		"a number that is none, by hand": {"true", "slurmv_vlan:0,slurmv_vni:many", Error, "Slurm does not count slurmv_vni, of which the pool has 1000", "add slurmv_vni:950 "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			n := fabricNode(t)
			n.write(t, "conf", strings.Replace(one, "[fabric]\n", "[fabric]\nlicenses = "+tt.on+"\n", 1), 0o644)
			n.setting("Licenses", tt.licences)
			var got Result
			for _, r := range n.check() {
				if r.Name == "licences" {
					got = r
				}
			}
			if got.Status != tt.status || got.Seen != tt.seen || !strings.HasPrefix(got.Advice, tt.advice) {
				t.Errorf("%+v", got)
			}
		})
	}
}
