package main

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestPhases(t *testing.T) {
	tests := map[string]struct {
		scenario scenario
		want     []phase
	}{
		"three start and stop one after another": {three, []phase{{1, 5}, {6, 10}, {11, 20}, {21, 30}, {31, 40}}},
		"twelve stop kind by kind":               {twelve, []phase{{1, 8}, {9, 16}, {17, 24}}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, tt.scenario.phases(), cmp.AllowUnexported(phase{})); diff != "" {
				t.Errorf("phases differ (-want +got):\n%s", diff)
			}
		})
	}
}

func TestExpectedShares(t *testing.T) {
	tests := map[string]struct {
		scenario  scenario
		minima    bool
		iteration int
		want      []float64
	}{
		"the first has the link for itself":     {three, true, 1, []float64{100, 0, 0}},
		"all three get their minima":            {three, true, 15, []float64{60, 30, 10}},
		"what is idle is shared by the minima":  {three, true, 25, []float64{0, 75, 25}},
		"without minima the parts are equal":    {three, false, 25, []float64{0, 50, 50}},
		"the last has the link for itself":      {three, true, 40, []float64{0, 0, 100}},
		"who has no minimum gets nothing":       {crowd(2), true, 1, []float64{40, 10, 0, 40, 10, 0}},
		"nor of what is idle":                   {crowd(2), true, 9, []float64{0, 50, 0, 0, 50, 0}},
		"unless nobody has a minimum who sends": {crowd(2), true, 17, []float64{0, 0, 50, 0, 0, 50}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := experiment{scenario: tt.scenario, link: 100, minima: tt.minima}.expected(tt.iteration)
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("shares differ (-want +got):\n%s", diff)
			}
		})
	}
}

// perfect returns results as expected.
func perfect(s scenario) (results []result) {
	for _, minima := range []bool{true, false} {
		r := result{experiment: experiment{scenario: s, link: 100, interval: time.Second, minima: minima}}
		for i := range s.iterations {
			r.samples = append(r.samples, r.expected(i+1))
		}
		results = append(results, r)
	}
	return results
}

func TestReports(t *testing.T) {
	tests := map[string]struct {
		text, row string
	}{
		"of three":               {reportThree(perfect(three)), "| 11-20 | 60.0 / 30.0 / 10.0 | 60.0 / 30.0 / 10.0 | 33.3 / 33.3 / 33.3 | 33.3 / 33.3 / 33.3 |\n"},
		"of twelve":              {reportTwelve(perfect(twelve)), "| 1-8 | AI | 5.0 | 5.00 (5.00-5.00) | 8.3 | 8.33 (8.33-8.33) |\n"},
		"of twelve's last phase": {reportTwelve(perfect(twelve)), "| 17-24 | file | 25.0 | 25.00 (25.00-25.00) | 25.0 | 25.00 (25.00-25.00) |\n"},
		"of twelve's placement":  {reportTwelve(perfect(twelve)), "| the 12 senders | n1: 4 video, 4 AI, 4 file | n1: 4 video, 3 AI, 4 file; n2: 1 AI |\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if !strings.Contains(tt.text, tt.row) {
				t.Errorf("%q is not in the report:\n%s", tt.row, tt.text)
			}
		})
	}
}

func TestRatesAreDrawn(t *testing.T) {
	for _, s := range []scenario{three, twelve} {
		if err := drawRates(perfect(s), t.TempDir()+"/rates.svg"); err != nil {
			t.Error(err)
		}
	}
}
