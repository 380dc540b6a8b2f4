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

// Tolerance is the part of its rate by which a VM's clock may be wrong.
const Tolerance = 0.01

const (
	// shortestPause and longestPause bound the time between two readings. A reading
	// costs an emulated VM some milliseconds of CPU.
	shortestPause = 5 * time.Millisecond
	longestPause  = 200 * time.Millisecond

	// maxReadings bounds those that are kept.
	maxReadings = 32
)

// A Reading says what a VM's clock showed at a moment between two of this host's.
type Reading struct {
	Asked, Answered time.Time     // with this host's monotonic clock
	Uptime          time.Duration // by the monotonic clock of the VM's kernel, which its timers use
}

// trip is how long the answer took.
func (r Reading) trip() time.Duration { return r.Answered.Sub(r.Asked) }

// A ClockRate is how fast a VM's clock runs: 1 is as fast as this host's. The true rate lies
// between Low and High, however late the VM's answers were.
type ClockRate struct{ Low, High float64 }

// RateBetween returns the mean rate between two readings. The longer the time between
// them is, compared with the time that the answers took, the closer are Low and High.
// High is infinite if the readings are too close to tell.
func RateBetween(a, b Reading) ClockRate {
	passed := float64(b.Uptime - a.Uptime)
	r := ClockRate{Low: passed / float64(b.Answered.Sub(a.Asked)), High: math.Inf(1)}
	if shortest := b.Asked.Sub(a.Answered); shortest > 0 {
		r.High = passed / float64(shortest)
	}
	return r
}

// Wrong reports whether the clock is certainly wrong: all of the range is further from 1
// than [Tolerance].
func (r ClockRate) Wrong() bool { return r.Low > 1+Tolerance || r.High < 1-Tolerance }

// Known reports whether the range tells right from wrong, and how wrong in good figures.
func (r ClockRate) Known() bool {
	right := r.Low >= 1-Tolerance && r.High <= 1+Tolerance
	inFigures := r.Error() < 0.05*max(1, r.Value())
	return right || r.Wrong() && inFigures || r.Error() < Tolerance/10
}

// Value is the middle of the range.
func (r ClockRate) Value() float64 { return (r.Low + r.High) / 2 }

// Error is by how much the true rate can differ from Value.
func (r ClockRate) Error() float64 { return (r.High - r.Low) / 2 }

func (r ClockRate) String() string {
	if math.IsInf(r.High, 1) {
		return fmt.Sprintf("more than %.3f", r.Low)
	}
	return fmt.Sprintf("%.3f (±%.3f)", r.Value(), r.Error())
}

// A Meter measures the rate of a VM's clock. Its methods must not be called at the same
// time.
type Meter struct {
	session  *Session
	readings []Reading
}

// NewMeter returns a meter without readings.
func (s *Session) NewMeter() *Meter { return &Meter{session: s} }

// Read reads the clock once. It returns the rate from that earlier reading up to this
// one which tells it most exactly.
func (m *Meter) Read(ctx context.Context) (ClockRate, error) {
	now, err := m.session.readUptime(ctx)
	if err != nil {
		return ClockRate{}, fmt.Errorf("read the VM's clock: %w", err)
	}
	best := ClockRate{Low: math.Inf(-1), High: math.Inf(1)}
	for _, earlier := range m.readings {
		if r := RateBetween(earlier, now); r.Error() < best.Error() || math.IsInf(best.Error(), 1) {
			best = r
		}
	}
	m.keep(now)
	return best, nil
}

// keep adds a reading. When there are enough of them it drops the one that took longest.
func (m *Meter) keep(r Reading) {
	if len(m.readings) == maxReadings {
		slowest := slices.MaxFunc(m.readings, func(a, b Reading) int { return cmp.Compare(a.trip(), b.trip()) })
		m.readings = slices.DeleteFunc(m.readings, func(r Reading) bool { return r == slowest })
	}
	m.readings = append(m.readings, r)
}

// Restart forgets all readings but the last: the next rates are those from now on.
func (m *Meter) Restart() {
	m.readings = m.readings[max(0, len(m.readings)-1):]
}

// Measure reads the clock until its rate is known. On a host that is busy this takes
// longer, and the result is as exact.
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

// pause is after how long another reading may be enough, if its answer is as quick as the
// quickest so far.
func (m *Meter) pause() time.Duration {
	quickest := m.readings[0].trip()
	for _, r := range m.readings {
		quickest = min(quickest, r.trip())
	}
	return max(shortestPause, min(quickest*(2/Tolerance), longestPause))
}

// readUptime asks for the time that the VM's monotonic clock shows.
func (s *Session) readUptime(ctx context.Context) (Reading, error) {
	asked := time.Now()
	a, err := s.ask(ctx, Header{Kind: kindClock})
	if err == nil && a.Uptime == 0 {
		err = errors.New("the agent in the VM does not tell it (is the image's agent older than the node's?)")
	}
	return Reading{Asked: asked, Answered: time.Now(), Uptime: time.Duration(a.Uptime)}, err
}
