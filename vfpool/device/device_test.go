package device

import (
	"encoding/json"
	"testing"
)

func TestReason(t *testing.T) {
	tests := map[string]struct {
		reason Reason
		want   string
	}{
		"none":        {Reason{}, ""},
		"with advice": {Reason{Seen: "its link is down", Advice: "ip link set eth0 up"}, "its link is down: ip link set eth0 up"},
		"without":     {Reason{Seen: "the bridge is not there"}, "the bridge is not there"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.reason.String(); got != tt.want {
				t.Errorf("reads %q, want %q", got, tt.want)
			}
		})
	}
}

// Leases of the previous version have the reason as a text, which is always empty.
func TestVFOfAnOlderLease(t *testing.T) {
	const text = `{"PF":"eth0","Index":1,"Kind":"sriov","PCI":"0000:01:10.1","NUMA":0,"Group":7,"Device":"0000:01:10.1","Unusable":""}`
	var vf VF
	err := json.Unmarshal([]byte(text), &vf)
	if want := (VF{PF: "eth0", Index: 1, Kind: SRIOV, PCI: "0000:01:10.1", Group: 7, Device: "0000:01:10.1"}); err != nil || vf != want {
		t.Errorf("read %+v, %v, want %+v", vf, err, want)
	}
}
