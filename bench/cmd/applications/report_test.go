package main

import (
	"os"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The report in docs comes from the figures beside it. After changing its words, run
// bench/applications --from docs/applications.json.
func TestReportIsTheOneInDocs(t *testing.T) {
	const docs = "../../../docs/"
	out := t.TempDir()
	if err := run(docs+"applications.json", out, 0, false); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile(docs + "applications.md")
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(out + "/applications.md")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), string(got)); diff != "" {
		t.Errorf("docs/applications.md is not what the figures give (-docs +figures):\n%s", diff)
	}
}

func TestTimesCountOnlyIfVerified(t *testing.T) {
	const out = `bfs: 2 searches in 1.2500 s, 6.553e+05 TEPS (harmonic mean): verified
cg: 1 iterations in 2.5000 s, zeta = 10.100000000000 by 4 ranks: WRONG
`
	var got [][]string
	for _, m := range verified.FindAllStringSubmatch(out, -1) {
		got = append(got, m[1:])
	}
	if diff := cmp.Diff([][]string{{"bfs", "1.2500"}}, got); diff != "" {
		t.Errorf("times differ (-want +got):\n%s", diff)
	}
}

func TestDifferencesNeedSteadyTimes(t *testing.T) {
	r := record{Series: []series{
		{Scenario: "EASJ", Side: shared, App: "cg", Seconds: []float64{1.1, 1.1, 1.2, 9, 1.2}},
		{Scenario: "EASJ", Side: apart, App: "cg", Seconds: []float64{4, 9, 4, 9, 9}},
		{Scenario: "EASJ", Side: big, App: "cg", Seconds: []float64{1, 1, 1, 1, 1}},
		{Scenario: "SACJ", Side: apart, App: "cg", Seconds: []float64{2, 2, 2, 2, 2}},
		{Scenario: "SACJ", Side: big, App: "cg", Seconds: []float64{1, 1, 1, 1, 1}},
	}}
	for scenario, want := range map[string]string{
		"EASJ": "not shown for " + apart + "; 1.20 times the time of " + big,
		"SACJ": "2.00 times the time of " + big,
	} {
		if got := r.differences(scenario, "cg", []string{shared, apart, big}); got != want {
			t.Errorf("%s: %q, want %q", scenario, got, want)
		}
	}
}
