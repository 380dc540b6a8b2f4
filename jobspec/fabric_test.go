package jobspec

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
)

func fabricSite(t *testing.T, text string) config.Config {
	t.Helper()
	cfg, err := config.Parse("slurmv.toml", []byte("defaults.image = \"/i\"\n"+text))
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

const vlansAndVNIs = "slurm.resources = \"job_submit\"\n[fabric]\nvlan.pool = \"2-9\"\nvni.pool = \"11-99\"\nvni.per_job = 2\n"

func TestWhatAVMJobWants(t *testing.T) {
	tests := map[string]struct {
		site   string
		values map[string]string
		want   string
		flat   string // beside CPUs and memory
	}{
		"with VFs a tag of each kind":  {vlansAndVNIs, map[string]string{"sriov": "3"}, "vlan:1,vni,vms:2,vfs:3", ",vf:6"},
		"without VFs nothing":          {vlansAndVNIs, nil, "", ""},
		"without VFs what it asks for": {vlansAndVNIs, map[string]string{"vm-fabric": "vni:1"}, "vni:1", ""},
		"off although it has VFs":      {"fabric.vni.pool = \"11-99\"", map[string]string{"sriov": "1", "vm-fabric": "off"}, "off", ",vf:2"},
		"licences of each kind":        {vlansAndVNIs + "licenses = true", map[string]string{"sriov": "1"}, "vlan:1,vni,vms:2,vfs:1", ",vf:2,lic_vlan:1,lic_vni:2"},
		"licences as it asks for":      {vlansAndVNIs + "licenses = true", map[string]string{"sriov": "1", "vm-fabric": "vni:4"}, "vlan:1,vni:4,vms:2,vfs:1", ",vf:2,lic_vlan:1,lic_vni:4"},
		"no licences for no VNIs":      {vlansAndVNIs + "licenses = true", map[string]string{"vm-fabric": "vni:0"}, "vni:0", ""},
		"no licences if off":           {vlansAndVNIs + "licenses = true", map[string]string{"vm-fabric": "off"}, "off", ""},
		"no pools":                     {"", map[string]string{"sriov": "1"}, "", ",vf:2"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := fabricSite(t, tt.site)
			values := map[string]string{"vm-per-node": "2"}
			for option, value := range tt.values {
				values[option] = value
			}
			spec, err := ParseIn("/home/u/run", values, noEnv, cfg)
			if err != nil {
				t.Fatal(err)
			}
			wish, err := spec.Wish(cfg)
			if err != nil || wish.String() != tt.want {
				t.Errorf("the job wants %q, %v; want %q", wish, err, tt.want)
			}
			if got, want := spec.Resources(cfg).Flat(), "cpus:2,mem:2560"+tt.flat; got != want {
				t.Errorf("it needs %s, want %s", got, want)
			}
			checkRoundTrip(t, spec, cfg)
		})
	}
}

func TestJobsWithoutVMs(t *testing.T) {
	tests := map[string]struct {
		site, value string
		want        string // the wish, or the error
		flat        string
	}{
		"a number of VNIs":             {vlansAndVNIs, "vni:3", "vni:3", ""},
		"a class":                      {vlansAndVNIs, "low-latency", "vni,tc:low-latency", ""},
		"licences":                     {vlansAndVNIs + "licenses = true", "low-latency", "vni,tc:low-latency", "lic_vni:2"},
		"off":                          {vlansAndVNIs, "off", "off", ""},
		"off where there are no tags":  {"", "off", "", ""},
		"VNIs where there are no tags": {"", "vni:1", "--vm-fabric: this site has no VNI for jobs (the pool of [fabric.vni] is empty)", ""},
		"a wrong number":               {vlansAndVNIs, "vni:42", "--vm-fabric: vni:42 is too many; a job has at most 4 VNIs", ""},
		"nothing":                      {vlansAndVNIs, "", "--vm-fabric: has no value; write --vm-fabric=off|vni:N|CLASS[,...]", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := fabricSite(t, tt.site)
			values := map[string]string{FabricOption: tt.value}
			if !WithoutVMs(values) {
				t.Fatal("the job is taken for a VM job")
			}
			wish, err := ParseWithoutVMs(values, cfg)
			got := wish.String()
			if err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("the job wants %q, want %q", got, tt.want)
			}
			if flat := (Resources{Licenses: LicensesOf(wish, cfg)}).Flat(); flat != tt.flat {
				t.Errorf("it needs %q, want %q", flat, tt.flat)
			}
		})
	}
}

func TestWhichJobsHaveNoVMs(t *testing.T) {
	tests := map[string]struct {
		values map[string]string
		want   bool
	}{
		"the option alone":      {map[string]string{"vm-fabric": "off"}, true},
		"beside another":        {map[string]string{"vm-fabric": "off", "sriov": "1"}, false},
		"in a VM job":           {map[string]string{"vm-fabric": "off", "vm-per-node": "1"}, false},
		"another option alone":  {map[string]string{"vm-per-node": "1"}, false},
		"no option, so no call": {nil, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := WithoutVMs(tt.values); got != tt.want {
				t.Errorf("WithoutVMs = %t, want %t", got, tt.want)
			}
		})
	}
}

// An agent that does not know the option reads the Spec of a job that does not use it.
func TestASpecWithoutChoiceIsAsBefore(t *testing.T) {
	with, without := plain(), plain()
	with.Fabric = "vni:1"
	if diff := cmp.Diff(without.Encode(), strings.Replace(with.Encode(), `"fabric":"vni:1",`, "", 1)); diff != "" {
		t.Errorf("beside the choice, it changes (-without +with):\n%s", diff)
	}
	if w, err := without.Wish(site()); err != nil || !cmp.Equal(w, fabric.Wish{}) {
		t.Errorf("without VFs the job wants %+v, %v", w, err)
	}
}
