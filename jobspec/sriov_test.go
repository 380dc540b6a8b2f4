package jobspec

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func parseVFs(t *testing.T, value string) ([]VF, error) {
	t.Helper()
	spec, err := ParseIn("/home/u/run", map[string]string{"vm-per-node": "2", "sriov": value}, noEnv, site())
	if err == nil {
		checkRoundTrip(t, spec, site())
	}
	return spec.SRIOV.VFs, err
}

func TestSRIOV(t *testing.T) {
	tests := map[string]struct {
		value string
		want  []VF
	}{
		"no VF":                          {"0", nil},
		"one VF":                         {"1", []VF{{}}},
		"as many as allowed":             {"16", make([]VF, 16)},
		"a reservation and a cap":        {"1:min=10g,max=40g", []VF{{MinMbps: 10000, MaxMbps: 40000}}},
		"rates in Mb/s":                  {"1:min=500,max=750m", []VF{{MinMbps: 500, MaxMbps: 750}}},
		"a cap alone":                    {"1:max=5G", []VF{{MaxMbps: 5000}}},
		"a reservation without a cap":    {"1:min=10g,max=0", []VF{{MinMbps: 10000}}},
		"a cap that is the reservation":  {"1:max=10g,min=10000", []VF{{MinMbps: 10000, MaxMbps: 10000}}},
		"the highest rate":               {"1:max=10000g", []VF{{MaxMbps: 10_000_000}}},
		"settings are each VF's":         {"2:min=10g", []VF{{MinMbps: 10000}, {MinMbps: 10000}}},
		"a PF by name":                   {"1:pf=enp1s0f0np0.2", []VF{{PF: "enp1s0f0np0.2"}}},
		"the NUMA node of the VM":        {"1:numa=require", []VF{{NUMA: NUMARequire}}},
		"any NUMA node":                  {"1:numa=any", []VF{{NUMA: NUMAAny}}},
		"the default for the NUMA node":  {"1:numa=prefer", []VF{{NUMA: NUMAPrefer}}},
		"on different PFs":               {"2:spread", []VF{{Spread: true}, {Spread: true}}},
		"a PF and spread by itself":      {"1:pf=a,spread+1:pf=b,spread", []VF{{PF: "a", Spread: true}, {PF: "b", Spread: true}}},
		"one of two on a PF is spread":   {"1:pf=a,spread+1:pf=a", []VF{{PF: "a", Spread: true}, {PF: "a"}}},
		"the other of two is spread":     {"1:pf=a+1:pf=a,spread", []VF{{PF: "a"}, {PF: "a", Spread: true}}},
		"a sum":                          {"1+2", make([]VF, 3)},
		"a sum keeps its order":          {"1+1:min=1g+1:max=5g", []VF{{}, {MinMbps: 1000}, {MaxMbps: 5000}}},
		"spread and numa are of a part":  {"1:spread,numa=any+1", []VF{{Spread: true, NUMA: NUMAAny}, {}}},
		"everything in any order":        {"1:spread,numa=require,pf=e,max=2g,min=1g", []VF{{1000, 2000, "e", NUMARequire, true}}},
		"ConRDMA's own example":          {`[{"min_tx_rate":15000,"max_tx_rate":20000},{"min_tx_rate":5000},{}]`, []VF{{MinMbps: 15000, MaxMbps: 20000}, {MinMbps: 5000}, {}}},
		"JSON with spaces":               {`[ { "max_tx_rate" : 20000 } , { } ]`, []VF{{MaxMbps: 20000}, {}}},
		"JSON with zeros, as if not set": {`[{"min_tx_rate":0,"max_tx_rate":0}]`, []VF{{}}},
		"JSON for no VF":                 {`[]`, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := parseVFs(t, tt.value)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("VFs differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestSRIOVRefuses(t *testing.T) {
	const form = "use a number of VFs, as in 2, with settings after a colon, as in 1:min=10g+2:max=5g"
	const settings = "is not a setting; use min=RATE, max=RATE, pf=NAME, numa=WORD or spread"
	tests := map[string]struct{ value, want string }{
		"too many":                        {"17", "17 VFs per VM are not allowed; use 0 to 16"},
		"too many together":               {"8:min=1g+9", "17 VFs per VM are not allowed; use 0 to 16"},
		"too many in many parts":          {strings.Repeat("999999+", 100) + "1", "99999901 VFs per VM are not allowed"},
		"more than can be counted":        {"9223372036854775807+4", "9223372036854775807 is not allowed; " + form},
		"text":                            {"yes", "yes is not allowed; " + form},
		"below zero":                      {"-1", "-1 is not allowed; " + form},
		"none with settings":              {"0:min=1g", "0:min=1g is not allowed; " + form},
		"none in a sum":                   {"1+0", "0 is not allowed; " + form},
		"a sum that ends":                 {"1+", `"" is not allowed; ` + form},
		"settings alone":                  {"min=1g", "min=1g is not allowed; " + form},
		"a colon and nothing":             {"1:", `1:: "" ` + settings},
		"a comma and nothing":             {"1:min=1g,", `1:min=1g,: "" ` + settings},
		"an unknown setting":              {"1:vlan=7", "1:vlan=7: vlan=7 " + settings},
		"a setting in another case":       {"1:MIN=1g", "1:MIN=1g: MIN=1g " + settings},
		"a setting twice":                 {"1:min=1g,min=2g", "min is given twice; join VFs with different settings with +"},
		"a rate of no number":             {"1:min=fast", "min: fast is not a rate; use a whole number of Mb/s, such as 500, or a number and g, such as 10g"},
		"a rate with a fraction":          {"1:min=2.5g", "min: 2.5g is not a rate"},
		"a rate below zero":               {"1:max=-1", "max: -1 is not a rate"},
		"a rate of a size's unit":         {"1:max=1T", "max: 1T is not a rate"},
		"an empty rate":                   {"1:max=", `max: "" is not a rate`},
		"a rate beyond any":               {"1:max=10001g", "max: 10001g is too high a rate; at most 10000g can be given"},
		"a rate beyond an integer":        {"1:max=99999999999999999999", "max: 99999999999999999999 is too high a rate"},
		"a rate without value":            {"1:min", "min is not allowed; min needs a value, as in --sriov=1:min=10g"},
		"a minimum above the maximum":     {"1:min=10g,max=5500", "1:min=10g,max=5500: the minimum of 10g is above the maximum of 5500m; use a maximum of at least 10g, or 0 for none"},
		"a PF with a slash":               {"1:pf=../ens1", "pf: ../ens1 is not an interface name; use 1 to 15 letters, digits, '.', '_' and '-'"},
		"a PF with a space":               {"1:pf=a b", "pf: a b is not an interface name"},
		"a PF with shell in it":           {"1:pf=$(id)", "pf: $(id) is not an interface name"},
		"a PF of 16 letters":              {"1:pf=abcdefghijklmnop", "pf: abcdefghijklmnop is not an interface name"},
		"an empty PF":                     {"1:pf=", `pf: "" is not an interface name`},
		"a NUMA word nobody knows":        {"1:numa=1", "numa: 1 is not allowed; use prefer, require or any"},
		"an empty NUMA word":              {"1:numa=", `numa: "" is not allowed; use prefer, require or any`},
		"spread with a value":             {"2:spread=yes", "spread=yes is not allowed; spread has no value"},
		"spread over one PF":              {"2:pf=ens1,spread", "spread puts each VF on another physical function, and pf=ens1 puts two on one; leave one of them out"},
		"spread over one PF in parts":     {"1:pf=a,spread+1:pf=a,spread", "and pf=a puts two on one"},
		"too long a text":                 {"1:min=" + strings.Repeat("0", maxSRIOV), "is 1030 bytes long; at most 1024 are allowed"},
		"a line break":                    {"1\n", "has a control or invisible character"},
		"JSON that ends early":            {`[{"min_tx_rate":1`, "is not a JSON list of objects (unexpected end of JSON input)"},
		"JSON with more behind it":        {`[{}] x`, "is not a JSON list of objects"},
		"JSON of numbers":                 {`[1,2]`, "is not a JSON list of objects"},
		"JSON without its quotes":         {`[{min_tx_rate:1}]`, `write it in single quotes, as in --sriov='[{"min_tx_rate":15000,"max_tx_rate":20000},{}]'`},
		"JSON with a null":                {`[{},null]`, "VF 2 of the list: null stands where an object describes a VF; use {} for one without settings"},
		"JSON for too many":               {"[" + strings.Repeat("{},", 16) + "{}]", "17 VFs per VM are not allowed; use 0 to 16"},
		"JSON with an unknown key":        {`[{"min_tx_rate":1,"vlan":7}]`, "VF 1 of the list: vlan is not a key; use min_tx_rate and max_tx_rate, or the form 1:min=10g"},
		"JSON with a key in another case": {`[{"MIN_TX_RATE":1}]`, "VF 1 of the list: MIN_TX_RATE is not a key"},
		"JSON with a fraction":            {`[{},{"min_tx_rate":1.5}]`, "VF 2 of the list: min_tx_rate: 1.5 is not allowed; use a whole number of Mb/s, such as 15000"},
		"JSON with a unit":                {`[{"min_tx_rate":"10g"}]`, `is not allowed; use a whole number of Mb/s`},
		"JSON with a rate below zero":     {`[{"max_tx_rate":-1}]`, "max_tx_rate: -1 is not allowed"},
		"JSON with a null for a rate":     {`[{"max_tx_rate":null}]`, "max_tx_rate: null is not allowed"},
		"JSON with a rate beyond any":     {`[{"max_tx_rate":10000001}]`, "max_tx_rate: 10000001 is too high a rate; at most 10000g can be given"},
		"JSON with a minimum above":       {`[{"min_tx_rate":2,"max_tx_rate":1}]`, "VF 1 of the list: the minimum of 2m is above the maximum of 1m"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			vfs, err := parseVFs(t, tt.value)
			var fault *valueError
			if !errors.As(err, &fault) {
				t.Fatalf("--sriov=%q gives %+v, %v; want a ValueError", tt.value, vfs, err)
			}
			if fault.Source != "--sriov" || !strings.Contains(fault.Reason, tt.want) {
				t.Errorf("error = %v, want --sriov: … %s …", err, tt.want)
			}
		})
	}
}
