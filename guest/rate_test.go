package guest

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

// rounding is what a rate may be wrong by: uptimes are whole nanoseconds.
const rounding = 1e-6

// startClock serves a VM whose kernel has clock sources with these rates, and takes tsc.
func startClock(t *testing.T, rates map[string]float64) *vm {
	t.Helper()
	v := startVM(t)
	v.machine.mu.Lock()
	defer v.machine.mu.Unlock()
	v.machine.rates, v.machine.source = rates, "tsc"
	return v
}

func TestMeasure(t *testing.T) {
	tests := map[string]struct {
		rate  float64
		wrong bool
	}{
		"right":                    {1, false},
		"half a per cent too fast": {1.005, false},
		"one per cent too slow":    {0.99, false},
		"two per cent too slow":    {0.98, true},
		"three times too fast":     {3, true},
		"twelve times too fast":    {12, true},
		"three times too slow":     {1.0 / 3, true},
		"standing still":           {0.000001, true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			v := startClock(t, map[string]float64{"tsc": tt.rate})
			got, err := v.NewMeter().Measure(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got.Wrong() != tt.wrong || !got.Known() {
				t.Errorf("rate %v: wrong = %v, known = %v", got, got.Wrong(), got.Known())
			}
			if tt.rate < got.Low-rounding || tt.rate > got.High+rounding {
				t.Errorf("rate %v is not in %+v", tt.rate, got)
			}
		})
	}
}

// On a host that is busy answers are late by any time, before or after the clock is read.
func TestMeasureOnALoadedHost(t *testing.T) {
	tests := map[string]struct {
		rate  float64
		wrong bool
	}{"right": {1, false}, "wrong": {3, true}}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			v := startClock(t, map[string]float64{"tsc": tt.rate})
			v.machine.late = func() { time.Sleep(time.Duration(rand.Int64N(int64(20 * time.Millisecond)))) }
			got, err := v.NewMeter().Measure(t.Context())
			if err != nil || got.Wrong() != tt.wrong {
				t.Errorf("rate %v: wrong = %v, error = %v", got, got.Wrong(), err)
			}
		})
	}
}

// simulated is a reading at a time after the epoch of the simulation: any part of the
// trip is before the clock is read, and the other part behind.
func simulated(random *rand.Rand, at time.Duration, rate float64) reading {
	epoch := time.Unix(1000, 0)
	before := time.Duration(random.ExpFloat64() * float64(50*time.Millisecond))
	after := time.Duration(random.ExpFloat64() * float64(50*time.Millisecond))
	return reading{
		Asked: epoch.Add(at), Answered: epoch.Add(at + before + after),
		Uptime: time.Duration(float64(at+before) * rate),
	}
}

// However late the answers are, the true rate lies between the bounds, so a right clock
// is never called wrong.
func TestBoundsHoldForEveryJitter(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 100_000 {
		rate := 0.2 + 3*random.Float64()
		if random.IntN(2) == 0 {
			rate = 1
		}
		first := simulated(random, 0, rate)
		second := simulated(random, first.trip()+time.Duration(random.Int64N(int64(time.Second))), rate)
		got := rateBetween(first, second)
		if rate < got.Low-rounding || rate > got.High+rounding {
			t.Fatalf("rate %v is not in %+v, by %+v and %+v", rate, got, first, second)
		}
		if rate == 1 && got.Wrong() {
			t.Fatalf("a right clock is wrong: %+v, by %+v and %+v", got, first, second)
		}
	}
}

// Readings one behind the other cannot tell the rate.
func TestReadingsTooCloseToTell(t *testing.T) {
	at := time.Unix(1000, 0)
	r := rateBetween(reading{at, at.Add(2), 0}, reading{at.Add(2), at.Add(4), 1})
	if r.Known() || r.Wrong() || !math.IsInf(r.High, 1) {
		t.Errorf("rate = %+v", r)
	}
	if got := r.String(); got != "more than 0.250" {
		t.Errorf("text = %q", got)
	}
}

// The readings that are kept are bounded, and those that took long go first.
func TestMeterForgetsSlowReadings(t *testing.T) {
	var m Meter
	at := time.Unix(1000, 0)
	for i := range 3 * maxReadings {
		trip := time.Millisecond
		if i%3 == 1 {
			trip = time.Second
		}
		m.keep(reading{at, at.Add(trip), time.Duration(i)})
	}
	if len(m.readings) != maxReadings {
		t.Errorf("%d readings are kept", len(m.readings))
	}
	for _, r := range m.readings {
		if r.trip() > time.Millisecond {
			t.Fatalf("a reading of %v is kept", r.trip())
		}
	}
	last := m.readings[maxReadings-1]
	if m.Restart(); len(m.readings) != 1 || m.readings[0] != last {
		t.Errorf("readings after a restart: %v", m.readings)
	}
}

// The clock is measured while the VM is set up.
func TestClockDoesNotWaitForTheSetup(t *testing.T) {
	v := startVM(t)
	v.machine.setting = make(chan struct{})
	done := make(chan error, 1)
	go func() {
		_, err := v.Setup(t.Context(), Setup{})
		done <- err
	}()
	<-v.machine.setting // the guest has begun
	if _, err := v.NewMeter().Measure(t.Context()); err != nil {
		t.Error(err)
	}
	v.machine.setting <- struct{}{}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// A guest that says nothing of its clock is not taken for one with a right clock.
func TestMeasureOfAGuestWithoutAClock(t *testing.T) {
	v := startClock(t, map[string]float64{"tsc": 0})
	if _, err := v.NewMeter().Measure(t.Context()); err == nil || !strings.Contains(err.Error(), "does not tell") {
		t.Errorf("error = %v", err)
	}
}

func TestMeasureEndsWithItsContext(t *testing.T) {
	v := startVM(t)
	v.machine.late = func() { time.Sleep(time.Millisecond) } // one second would do
	enough := errors.New("enough")
	ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, enough)
	defer cancel()
	if _, err := v.NewMeter().Measure(ctx); !errors.Is(err, enough) {
		t.Errorf("error = %v", err)
	}
}

func TestMend(t *testing.T) {
	tests := map[string]struct {
		rates   map[string]float64
		refused string
		source  string
		want    string // of the error
	}{
		"by the next best":           {rates: map[string]float64{"tsc": 3, "hpet": 1, "acpi_pm": 1}, source: "hpet"},
		"by the last":                {rates: map[string]float64{"tsc": 12, "hpet": 2, "acpi_pm": 1}, source: "acpi_pm"},
		"by one that is not first":   {rates: map[string]float64{"tsc": 3, "hpet": 1, "acpi_pm": 1}, refused: "hpet", source: "acpi_pm"},
		"not without another":        {rates: map[string]float64{"tsc": 3}, source: "tsc", want: "its kernel has no other clock source"},
		"not by one that is wrong":   {rates: map[string]float64{"tsc": 3, "hpet": 3}, source: "hpet", want: "(tried hpet)"},
		"not by one that is refused": {rates: map[string]float64{"tsc": 3, "acpi_pm": 1}, refused: "acpi_pm", source: "tsc", want: "(tried acpi_pm)"},
		"not by one nobody knows":    {rates: map[string]float64{"tsc": 3, "sundial": 1}, source: "tsc", want: "no other"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			v := startClock(t, tt.rates)
			v.machine.refused = tt.refused
			m := v.NewMeter()
			rate, err := m.Measure(t.Context())
			if err != nil || !rate.Wrong() {
				t.Fatalf("rate = %v, %v", rate, err)
			}
			rate, err = m.Mend(t.Context(), rate)
			if rate.Wrong() != (tt.want != "") || (err != nil) != (tt.want != "") {
				t.Errorf("rate = %v, %v", rate, err)
			}
			if err != nil && (!strings.Contains(err.Error(), tt.want) || !strings.Contains(err.Error(), "times as fast as the node's, by clock source tsc")) {
				t.Errorf("error = %v, want one that says %q", err, tt.want)
			}
			if s, err := v.ClockSource(t.Context()); err != nil || s.Current != tt.source {
				t.Errorf("clock source = %+v, %v", s, err)
			}
		})
	}
}
