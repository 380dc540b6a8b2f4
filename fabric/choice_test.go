package fabric

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestChoicesAndTheirTexts(t *testing.T) {
	tests := map[string]struct {
		text  string
		want  Choice
		again string // the shortest text
	}{
		"off":                  {"off", Choice{Off: true, VNIs: PerPool}, "off"},
		"a number of VNIs":     {"vni:4", Choice{VNIs: 4}, "vni:4"},
		"no VNIs":              {"vni:0", Choice{}, "vni:0"},
		"a traffic class":      {"bulk", Choice{VNIs: PerPool, Classes: []Class{Bulk}}, "bulk"},
		"all, in any order":    {"best-effort,vni:2,dedicated", Choice{VNIs: 2, Classes: []Class{Dedicated, BestEffort}}, "vni:2,dedicated,best-effort"},
		"a number after zeros": {"vni:02", Choice{VNIs: 2}, "vni:2"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseChoice(tt.text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("the choice differs (-want +got):\n%s", diff)
			}
			if got.String() != tt.again {
				t.Errorf("its text is %q, want %q", got, tt.again)
			}
		})
	}
}

func TestParseChoiceRefuses(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"more VNIs than a job has":   {"vni:42", "vni:42 is too many; a job has at most 4 VNIs"},
		"one more than a job has":    {"vni:5", "vni:5 is too many; a job has at most 4 VNIs"},
		"a number beyond any":        {"vni:99999999999999999999", "is too many; a job has at most 4 VNIs"},
		"a number below zero":        {"vni:-1", "vni:-1 is not allowed; write vni:N with a number, 0 to 4"},
		"no number":                  {"vni:", "vni: is not allowed; write vni:N"},
		"a number of nothing":        {"2", "2 is not allowed; use off, vni:N with a number of VNIs, or traffic classes (dedicated, low-latency, bulk, best-effort), joined with commas"},
		"the kinds that VFs bring":   {"vlan:1", "vlan:1 is not allowed; use off, vni:N"},
		"an unknown class":           {"fast", "fast is not allowed; use off"},
		"a class in another case":    {"Bulk", "Bulk is not allowed"},
		"nothing after a comma":      {"vni:1,", `"" is not allowed`},
		"a space":                    {"vni:1, bulk", " bulk is not allowed"},
		"two numbers":                {"vni:1,vni:1", "vni:1 is there twice; write it once"},
		"off twice":                  {"off,off", "off is there twice"},
		"a class twice":              {"bulk,vni:1,bulk", "bulk is there twice"},
		"off beside VNIs":            {"off,vni:1", "off means no tags at all; leave it out, or the rest"},
		"off beside a class":         {"bulk,off", "off means no tags at all"},
		"a class for no VNI":         {"vni:0,bulk,dedicated", "vni:0 leaves no VNI whose traffic could have the class dedicated"},
		"an escape for the terminal": {"\x1b[2J", `"\x1b[2J" is not allowed`},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, err := ParseChoice(tt.text)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("%q is %+v, error %v; want one with %q", tt.text, c, err, tt.want)
			}
		})
	}
}

func TestWhatAJobWantsByItsChoice(t *testing.T) {
	const (
		vlans  = "[fabric.vlan]\npool = \"2-3\""
		silent = "[fabric.vni]\npool = \"2-9\"\nper_job = 0"
		noVNI  = "error: this site has no VNI for jobs (the pool of [fabric.vni] is empty)"
	)
	tests := map[string]struct {
		site, choice string
		vms, vfs     int
		want         string // or an error
	}{
		"VMs with VFs keep their other tags":  {allKinds, "vni:3", 2, 1, "vlan:1,pkey:1,vni:3,vms:2,vfs:1"},
		"and their classes":                   {allKinds, "low-latency", 2, 1, "vlan:1,pkey:1,vni,tc:low-latency,vms:2,vfs:1"},
		"and may leave out the VNIs":          {allKinds, "vni:0", 2, 1, "vlan:1,pkey:1,vni:0,vms:2,vfs:1"},
		"VMs without VFs get VNIs":            {allKinds, "vni:3", 2, 0, "vni:3"},
		"a job without VMs gets VNIs":         {allKinds, "vni:1", 0, 0, "vni:1"},
		"a class alone brings the usual VNIs": {allKinds, "best-effort,low-latency", 0, 0, "vni,tc:low-latency+best-effort"},
		"off reaches the controllers":         {allKinds, "off", 2, 0, "off"},
		"off of VFs without other tags":       {"[fabric]\nvni.pool = \"2-9\"", "off", 2, 1, "off"},
		"off of VFs that have a P_Key": {"[fabric]\npkey.pool = \"2-9\"\nvni.pool = \"2-9\"", "off", 2, 1,
			"error: off would leave the VFs without P_Key, and they could then reach other jobs; leave it out, or write vni:0 for no VNI"},
		"off of VFs that have a VLAN": {allKinds, "off", 2, 1, "error: off would leave the VFs without VLAN, and they could then reach other jobs; " +
			"leave it out, or write vni:0 for no VNI"},
		"none reaches the controllers":         {allKinds, "vni:0", 0, 0, "vni:0"},
		"off where nobody listens":             {"", "off", 2, 1, ""},
		"none where nobody listens":            {"", "vni:0", 0, 0, ""},
		"VNIs where there are none":            {vlans, "vni:1", 1, 1, noVNI},
		"a class where there are no VNIs":      {vlans, "bulk", 1, 1, noVNI},
		"VNIs where there is nothing":          {"", "vni:1", 0, 0, noVNI},
		"a class that the site forbids":        {allKinds, "bulk", 0, 0, "error: jobs of this site may not use the traffic class bulk; use low-latency or best-effort"},
		"a class where VNIs must be asked for": {silent, "low-latency", 0, 0, "error: jobs of this site have VNIs only if they say how many; add vni:1"},
		"a class and VNIs that were asked for": {silent, "low-latency,vni:1", 0, 0, "vni:1,tc:low-latency"},
		"VLANs stay where there are no VNIs":   {vlans, "vni:0", 1, 1, "vlan:1,vni:0,vms:1,vfs:1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			choice, err := ParseChoice(tt.choice)
			if err != nil {
				t.Fatal(err)
			}
			w, err := choice.Wish(site(t, tt.site), tt.vms, tt.vfs)
			got := w.String()
			if err != nil {
				got = "error: " + err.Error()
			}
			if got != tt.want {
				t.Fatalf("the job wants %q, want %q", got, tt.want)
			}
			if again, readErr := ParseWish(got); err == nil && got != "" && (readErr != nil || !cmp.Equal(w, again)) {
				t.Errorf("the controller reads %+v, %v; want %+v", again, readErr, w)
			}
		})
	}
}
