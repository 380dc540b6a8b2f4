package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPhases(t *testing.T) {
	want := []phase{{1, 5}, {6, 10}, {11, 20}, {21, 30}, {31, 40}}
	if diff := cmp.Diff(want, phases(), cmp.AllowUnexported(phase{})); diff != "" {
		t.Errorf("phases differ (-want +got):\n%s", diff)
	}
}

func TestExpectedShares(t *testing.T) {
	tests := map[string]struct {
		minima    bool
		iteration int
		want      []float64
	}{
		"the first has the link for itself":    {true, 1, []float64{100, 0, 0}},
		"all three get their minima":           {true, 15, []float64{60, 30, 10}},
		"what is idle is shared by the minima": {true, 25, []float64{0, 75, 25}},
		"without minima the parts are equal":   {false, 25, []float64{0, 50, 50}},
		"the last has the link for itself":     {false, 40, []float64{0, 0, 100}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := experiment{link: 100, minima: tt.minima}.expected(tt.iteration)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("shares differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReport(t *testing.T) {
	var results []result
	for _, minima := range []bool{true, false} {
		r := result{experiment: experiment{link: 100, interval: time.Second, minima: minima}}
		for i := range iterations {
			r.samples[i] = r.expected(i + 1)
		}
		results = append(results, r)
	}
	got := report(results)
	if want := "| 11-20 | 60.0 / 30.0 / 10.0 | 60.0 / 30.0 / 10.0 | 33.3 / 33.3 / 33.3 | 33.3 / 33.3 / 33.3 |\n"; !strings.Contains(got, want) {
		t.Errorf("%q is not in the report:\n%s", want, got)
	}
	if err := drawTo(results, t.TempDir()+"/vf-sharing.svg"); err != nil {
		t.Error(err)
	}
}
