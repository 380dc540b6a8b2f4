package guest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"
)

// tolerance is how far a VM's clock rate may be from 1.
const tolerance = 0.01

const (
	// shortestPause and longestPause bound the time between two readings. A reading
	// costs an emulated VM some milliseconds of CPU.
	shortestPause = 5 * time.Millisecond
	longestPause  = 200 * time.Millisecond

	// maxReadings bounds how many readings are kept.
	maxReadings = 32
)

// A reading is the VM's clock at some moment between two moments of this host's clock.
type reading struct {
	Asked, Answered time.Time     // by this host's monotonic clock
	Uptime          time.Duration // by the monotonic clock of the VM's kernel, which its timers use
}

// trip is how long the answer took.
func (r reading) trip() time.Duration { return r.Answered.Sub(r.Asked) }

// A ClockRate is how fast a VM's clock runs: 1 is as fast as this host's. The true rate lies
// between Low and High, even if the VM's answers were late.
type ClockRate struct{ Low, High float64 }

// rateBetween returns the mean rate between two readings. Low and High are closer if the
// time between the readings is long compared with the time that the answers took. High is
// infinite if the readings are too close to each other to tell.
func rateBetween(a, b reading) ClockRate {
	passed := float64(b.Uptime - a.Uptime)
	r := ClockRate{Low: passed / float64(b.Answered.Sub(a.Asked)), High: math.Inf(1)}
	if shortest := b.Asked.Sub(a.Answered); shortest > 0 {
		r.High = passed / float64(shortest)
	}
	return r
}

// Wrong reports whether the clock is certainly wrong: the whole range is further from 1
// than tolerance.
func (r ClockRate) Wrong() bool { return r.Low > 1+tolerance || r.High < 1-tolerance }

// Known reports whether the range tells right from wrong. For a wrong rate, the range must
// also be narrow enough to name the rate in a message.
func (r ClockRate) Known() bool {
	right := r.Low >= 1-tolerance && r.High <= 1+tolerance
	inFigures := r.Error() < 0.05*max(1, r.Value())
	return right || r.Wrong() && inFigures || r.Error() < tolerance/10
}

// Value is the middle of the range.
func (r ClockRate) Value() float64 { return (r.Low + r.High) / 2 }

// Error is the most by which the true rate can differ from Value.
func (r ClockRate) Error() float64 { return (r.High - r.Low) / 2 }

func (r ClockRate) String() string {
	if math.IsInf(r.High, 1) {
		return fmt.Sprintf("more than %.3f", r.Low)
	}
	return fmt.Sprintf("%.3f (±%.3f)", r.Value(), r.Error())
}

// A Meter measures the rate of a VM's clock. It is not safe for concurrent use.
type Meter struct {
	session  *Session
	readings []reading
}

// NewMeter returns a meter without readings.
func (s *Session) NewMeter() *Meter { return &Meter{session: s} }

// Read reads the clock once. It returns the rate since one of the earlier readings: the one
// that gives the smallest error.
func (m *Meter) Read(ctx context.Context) (ClockRate, error) {
	now, err := m.session.readUptime(ctx)
	if err != nil {
		return ClockRate{}, fmt.Errorf("read the VM's clock: %w", err)
	}
	best := ClockRate{Low: math.Inf(-1), High: math.Inf(1)}
	for _, earlier := range m.readings {
		if r := rateBetween(earlier, now); r.Error() < best.Error() || math.IsInf(best.Error(), 1) {
			best = r
		}
	}
	m.keep(now)
	return best, nil
}

// keep adds a reading. If there are too many, it drops the one with the longest round trip.
func (m *Meter) keep(r reading) {
	if len(m.readings) == maxReadings {
		slowest := slices.MaxFunc(m.readings, func(a, b reading) int { return cmp.Compare(a.trip(), b.trip()) })
		m.readings = slices.DeleteFunc(m.readings, func(r reading) bool { return r == slowest })
	}
	m.readings = append(m.readings, r)
}

// Restart forgets all readings but the last, so later rates start there.
func (m *Meter) Restart() {
	m.readings = m.readings[max(0, len(m.readings)-1):]
}

// Measure reads the clock until its rate is known. On a busy host this takes longer, but
// the result is just as exact.
func (m *Meter) Measure(ctx context.Context) (ClockRate, error) {
	for {
		rate, err := m.Read(ctx)
		if err != nil || rate.Known() {
			return rate, err
		}
		select {
		case <-time.After(m.pause()):
		case <-ctx.Done():
			return rate, context.Cause(ctx)
		}
	}
}

// pause is the time until the next reading: it may then be exact enough, if its answer is
// as quick as the quickest so far.
func (m *Meter) pause() time.Duration {
	quickest := m.readings[0].trip()
	for _, r := range m.readings {
		quickest = min(quickest, r.trip())
	}
	return max(shortestPause, min(quickest*(2/tolerance), longestPause))
}

// readUptime reads the VM's monotonic clock.
func (s *Session) readUptime(ctx context.Context) (reading, error) {
	asked := time.Now()
	a, err := s.ask(ctx, Header{Kind: kindClock})
	if err == nil && a.Uptime == 0 {
		err = errors.New("the agent in the VM does not tell it (is the image's agent older than the node's?)")
	}
	return reading{Asked: asked, Answered: time.Now(), Uptime: time.Duration(a.Uptime)}, err
}
