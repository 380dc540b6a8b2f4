package config

import "testing"

func TestVLAN(t *testing.T) {
	tests := map[string]struct {
		vlans string
		job   uint32
		want  uint16
	}{
		"none":                          {"", 7, 0},
		"the first":                     {"2000-2999", 4000, 2000},
		"the last":                      {"2000-2999", 3999, 2999},
		"every tag there is":            {"1-4094", 4093, 4094},
		"after the last the first":      {"1-4094", 4094, 1},
		"one for all":                   {"7-7", 12, 7},
		"the highest number of a job":   {"2000-2999", 1<<32 - 1, 2295},
		"a range that nobody checked":   {"2999-2000", 7, 0},
		"a range with a space":          {"1 - 2", 7, 0},
		"a range that goes on too long": {"1-2-3", 7, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := (VF{VLANs: tt.vlans}).VLAN(tt.job); got != tt.want {
				t.Errorf("VLAN(%d) of %q = %d, want %d", tt.job, tt.vlans, got, tt.want)
			}
		})
	}
}

func TestVLANRange(t *testing.T) {
	if first, last, ok := (VF{VLANs: "2000-2999"}).VLANRange(); first != 2000 || last != 2999 || !ok {
		t.Errorf("VLANRange = %d, %d, %t; want 2000, 2999, true", first, last, ok)
	}
}
