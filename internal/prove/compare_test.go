package prove

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestCompare(t *testing.T) {
	flat := []float64{1, 1.02, 1, 1.01, 0.99}
	tests := map[string]struct {
		bare, vms []float64
		emulated  bool
		percent   float64 // 0 for none
		verdict   string
	}{
		"slower by more than the spread":   {flat, []float64{1.2, 1.21, 1.2, 1.19, 1.2}, false, 20, "20.0 % slower in VMs"},
		"faster":                           {[]float64{2, 2, 2, 2, 2}, []float64{1, 1, 1, 1, 1}, false, -50, "50.0 % faster in VMs"},
		"within the spread of bare nodes":  {[]float64{1, 1.3, 1, 1.1, 1}, []float64{1.2, 1.2, 1.2, 1.2, 1.2}, false, 0, "no difference beyond the spread of 30.0 %"},
		"within the spread of VMs":         {flat, []float64{1, 1.4, 1.1, 1, 1.2}, false, 0, "no difference beyond the spread of 40.0 %"},
		"a spread too wide for any figure": {flat, []float64{1, 5, 5, 5, 5}, false, 0, "not judged: the greatest value is more than twice the least; measure on nodes with nothing else to do"},
		"too few rounds":                   {flat[:4], []float64{2, 2, 2, 2, 2}, false, 0, "not judged: fewer than 5 rounds"},
		"emulated":                         {flat, []float64{2, 2, 2, 2, 2}, true, 0, "not judged: the VMs are emulated, and this is what the emulator costs"},
		"one side only":                    {flat, nil, false, 0, "not measured on both sides"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := compare(metrics[0], tt.bare, tt.vms, tt.emulated)
			percent := 0.0
			if c.Percent != nil {
				percent = *c.Percent
			}
			if c.Verdict != tt.verdict || percent < tt.percent-1e-6 || percent > tt.percent+1e-6 {
				t.Errorf("verdict %q with %v %%, want %q with %v", c.Verdict, percent, tt.verdict, tt.percent)
			}
		})
	}
}

func TestCostsOfARun(t *testing.T) {
	p := good().Judge()
	got := map[string][2]float64{}
	for _, c := range p.Costs {
		got[c.Name] = [2]float64{c.BareMedian, c.VMsMedian}
	}
	// The slowest rank's time; the rates of all ranks; no latency, because only one side has it.
	if diff := cmp.Diff(map[string][2]float64{"compute": {1.3, 2.3}, "memory": {400, 200}, "latency": {10, 0}, "bandwidth": {0, 0}}, got); diff != "" {
		t.Errorf("costs differ (-want +got):\n%s", diff)
	}
}

func TestMedian(t *testing.T) {
	for _, tt := range []struct {
		values []float64
		want   float64
	}{{nil, 0}, {[]float64{3}, 3}, {[]float64{9, 1, 2}, 2}, {[]float64{4, 1, 2, 9}, 3}} {
		if got := median(tt.values); got != tt.want {
			t.Errorf("median of %v is %v, want %v", tt.values, got, tt.want)
		}
	}
}
