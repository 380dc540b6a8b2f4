package main

import (
	"strings"
	"testing"
	"time"
)

// measured returns a latency per trial, with round trips of 1 to 100 ms in the first round,
// and 1 and 2 ms more in the others.
func measured() (results []latency) {
	for _, trial := range trials {
		l := latency{trial: trial, load: []float64{90, 94}, trips: make([][][]float64, len(sizes))}
		for size := range sizes {
			for round := range rounds {
				var trips []float64
				for ms := range 100 {
					trips = append(trips, float64(1+ms+round))
				}
				l.trips[size] = append(l.trips[size], trips)
			}
		}
		results = append(results, l)
	}
	return results
}

func TestASpreadIsOfRounds(t *testing.T) {
	l := measured()[0]
	for percent, want := range map[float64]spread{50: {51, 50, 52}, 99: {100, 99, 101}} {
		if got := l.at(0, percent); got != want {
			t.Errorf("percentile %g is %+v, want %+v", percent, got, want)
		}
	}
}

func TestReportOfLatency(t *testing.T) {
	text := reportLatency(measured(), order{link: 100, interval: time.Second})
	for _, row := range []string{
		"together 0.5 ms.", "after 14 ms if the message is of 64 bytes, 136 ms if it is of 1024", // expected
		"here 11.6 KB.", "16 KiB takes 2 ms longer",
		"| | 64 bytes | 256 bytes | 1024 bytes | 4096 bytes | 16384 bytes |\n",
		"| full link, no minima | 51 (50-52) | 51 (50-52) |",
		"| full link, no minima | 100 (99-101) |",
		"| full link, no minima | 300 / 300 / 300 / 300 / 300 | 0 | 92.0 |\n",
	} {
		if !strings.Contains(text, row) {
			t.Errorf("%q is not in the report:\n%s", row, text)
		}
	}
	if err := drawLatency(measured(), t.TempDir()+"/latency.svg"); err != nil {
		t.Error(err)
	}
}

func TestMessagesTakeATenthOfTheLink(t *testing.T) {
	tests := map[string]struct {
		bytes       uint32
		least, most time.Duration
	}{
		"small ones take less":           {64, 500 * time.Microsecond, 1500 * time.Microsecond},
		"large ones have longer between": {16384, 6553 * time.Microsecond, 19661 * time.Microsecond},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := caller{link: 100e6}
			for range 1000 {
				if got := c.pause(tt.bytes); got < tt.least || got > tt.most {
					t.Fatalf("%v is not between %v and %v", got, tt.least, tt.most)
				}
			}
		})
	}
}
