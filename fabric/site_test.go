package fabric

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/config"
)

func TestPoolsOfASite(t *testing.T) {
	want := []Pool{
		{Name: "vlan", Kind: VLAN, Tags: []Range{{2000, 2999}}, PerJob: 1},
		{Name: "pkey", Kind: PKey, Tags: []Range{{0x1000, 0x1fff}}, PerJob: 1},
		{Name: "vni", Kind: VNI, Tags: []Range{{1024, 2047}, {4096, 8191}}, PerJob: 2},
		{Name: "gpus", Kind: VNI, Tags: []Range{{40000, 49999}}, PerJob: 1, Partitions: []string{"gpu", "debug"}},
	}
	if diff := cmp.Diff(want, Pools(site(t, allKinds))); diff != "" {
		t.Errorf("the pools differ (-want +got):\n%s", diff)
	}
	if got := Pools(site(t, "")); got != nil {
		t.Errorf("a site without tags has the pools %v", got)
	}
}

func TestPoolsOfAPartition(t *testing.T) {
	const onlyGPUs = "[fabric.pool.gpus]\nkind = \"vni\"\npool = \"40000-49999\"\npartitions = [\"gpu\"]"
	tests := map[string]struct {
		site, partition string
		want            []string
	}{
		"those for all":                       {allKinds, "batch", []string{"vlan", "pkey", "vni"}},
		"its own comes before those for all":  {allKinds, "debug", []string{"vlan", "pkey", "gpus"}},
		"only its own":                        {onlyGPUs, "gpu", []string{"gpus"}},
		"none of another partition's":         {onlyGPUs, "batch", nil},
		"a partition whose name is not known": {onlyGPUs, "", nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, p := range PoolsOf(site(t, tt.site), tt.partition) {
				got = append(got, p.Name)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("the pools differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestWhatAJobWantsThatDoesNotSay(t *testing.T) {
	tests := map[string]struct {
		site     string
		vms, vfs int
		want     string
	}{
		"VMs with VFs want one of each kind":  {allKinds, 2, 3, "vlan:1,pkey:1,vni,vms:2,vfs:3"},
		"VMs without VFs want nothing":        {allKinds, 2, 0, ""},
		"a job without VMs wants nothing":     {allKinds, 0, 0, ""},
		"a site without tags has none":        {"", 2, 1, ""},
		"a pool that gives none by itself":    {"[fabric.vni]\npool = \"1024-2047\"\nper_job = 0", 2, 1, ""},
		"a pool for one partition is for all": {"[fabric.pool.a]\nkind = \"pkey\"\npool = \"1-9\"\npartitions = [\"a\"]", 1, 1, "pkey:1,vms:1,vfs:1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := WishOf(site(t, tt.site), tt.vms, tt.vfs).String(); got != tt.want {
				t.Errorf("the wish is %q, want %q", got, tt.want)
			}
		})
	}
}

func TestWhatASiteRefuses(t *testing.T) {
	tests := map[string]struct{ site, wish, want string }{
		"all that it has":           {allKinds, "vlan:1,pkey:1,vni:4,tc:low-latency+best-effort,vms:1,vfs:1", ""},
		"a kind that it lacks":      {"[fabric.vlan]\npool = \"2-3\"", "vni:1", "this site has no VNI for jobs (the pool of [fabric.vni] is empty)"},
		"none of what it lacks":     {"", "vni:0", ""},
		"off is possible always":    {"", "off", ""},
		"a class that it forbids":   {allKinds, "vni:1,tc:bulk", "jobs of this site may not use the traffic class bulk; use low-latency or best-effort"},
		"a kind in one pool of two": {"[fabric.pool.a]\nkind = \"vni\"\npool = \"2-9\"\npartitions = [\"a\"]", "vni:1", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w, err := ParseWish(tt.wish)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if err := w.Check(site(t, tt.site)); err != nil {
				got = err.Error()
			}
			if got != tt.want {
				t.Errorf("error = %q, want %q", got, tt.want)
			}
		})
	}
}

// Package config is below this one, so it has names of its own.
func TestKindsAndClassesAreThoseOfTheConfiguration(t *testing.T) {
	var kinds []Kind
	for _, k := range config.TagKinds {
		kinds = append(kinds, Kind(k))
	}
	var classes []Class
	for _, c := range config.TrafficClasses {
		classes = append(classes, Class(c))
	}
	if diff := cmp.Diff(Kinds, kinds); diff != "" {
		t.Errorf("the kinds differ (-fabric +config):\n%s", diff)
	}
	if diff := cmp.Diff(Classes, classes); diff != "" {
		t.Errorf("the classes differ (-fabric +config):\n%s", diff)
	}
}
