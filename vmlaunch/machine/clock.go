package machine

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

// clockPeriod is the time between two measurements of a running VM's clock.
// firstClockPeriod is the time before the first one.
const (
	firstClockPeriod = 2 * time.Second
	clockPeriod      = 30 * time.Second
)

// BeginClockCheck starts to measure the rate of the VM's clock, while the VM is set up. The
// caller then calls end; if end returns an error, the VM cannot be used.
//
// A booted VM is ready only once the rate is known: its kernel has just calibrated its
// clock, perhaps while it had no CPU. A restored VM has the clock of its template, which
// was right, so it need not wait. An obviously wrong rate is found now, a slightly wrong
// one by [Set.WatchClocks].
func (m *Machine) BeginClockCheck(ctx context.Context) (end func() error) {
	m.meter = m.Session().NewMeter()
	if m.IsRestoring() {
		_, err := m.meter.Read(ctx)
		return func() error { return errors.Join(err, m.glanceAtClock(ctx)) }
	}
	done := make(chan error, 1)
	go func() { done <- m.CheckClock(ctx) }()
	return func() error { return <-done }
}

// CheckClock returns when the rate of the VM's clock is known and right. If the rate is
// wrong, it first tries the kernel's other clock sources.
func (m *Machine) CheckClock(ctx context.Context) error {
	if m.meter == nil {
		m.meter = m.Session().NewMeter()
	}
	rate, err := m.meter.Measure(ctx)
	if err == nil && rate.Wrong() {
		rate, err = m.mendClock(ctx, rate)
	}
	if err != nil {
		return err
	}
	return m.noteClock(ctx, rate)
}

// glanceAtClock reads the clock once, and calls CheckClock only if this reading shows a
// wrong rate.
func (m *Machine) glanceAtClock(ctx context.Context) error {
	rate, err := m.meter.Read(ctx)
	switch {
	case err != nil:
		return err
	case rate.Wrong():
		return m.CheckClock(ctx)
	case rate.Known():
		return m.noteClock(ctx, rate)
	}
	return nil
}

// mendClock makes the VM's kernel use another clock source.
func (m *Machine) mendClock(ctx context.Context, wrong guest.ClockRate) (guest.ClockRate, error) {
	m.trace.Log.Warn("clock is wrong", "vm", m.Plan.Name, "rate", wrong)
	rate, err := m.meter.Mend(ctx, wrong)
	if err == nil {
		m.trace.Log.Info("clock is mended", "vm", m.Plan.Name, "rate", rate)
	}
	return rate, err
}

// noteClock keeps the rate of the VM's clock for [Machine.Describe]. It logs the first
// rate, and later ones if the clock source has changed.
func (m *Machine) noteClock(ctx context.Context, rate guest.ClockRate) error {
	source, err := m.Session().ClockSource(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	before := m.clockRate
	m.clockRate = &nodeagent.Clock{Rate: rate.Value(), Error: rate.Error(), Source: source.Current}
	m.mu.Unlock()
	if before == nil || before.Source != source.Current {
		m.trace.Log.Info("clock measured", "vm", m.Plan.Name, "rate", rate, "source", source.Current)
	}
	return nil
}

// WatchClocks measures the clocks of the VMs until ctx ends. If a clock becomes wrong and
// cannot be mended, the VM counts as ended.
func (s *Set) WatchClocks(ctx context.Context) {
	for _, m := range s.Machines {
		if m.meter != nil {
			go s.watchClock(ctx, m)
		}
	}
}

func (s *Set) watchClock(ctx context.Context, m *Machine) {
	for pause := firstClockPeriod; ; pause = clockPeriod {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		err := m.measureAgain(ctx)
		switch {
		case err == nil:
			continue
		case isClockError(err):
			s.loseToClock(m, err)
		case ctx.Err() == nil && m.Session().Err() == nil:
			m.trace.Log.Warn("clock is not watched any more", "vm", m.Plan.Name, "error", err)
		}
		return
	}
}

// measureAgain measures the mean rate since the last measurement. If it is wrong, the
// present rate decides: Slurm may have stopped the VM meanwhile (scontrol suspend), and
// some clock sources do not count such times.
func (m *Machine) measureAgain(ctx context.Context) error {
	rate, err := m.meter.Measure(ctx)
	if err != nil {
		return err
	}
	m.meter.Restart()
	if rate.Wrong() {
		return m.CheckClock(ctx)
	}
	return m.noteClock(ctx, rate)
}

// loseToClock ends a VM with a wrong clock: its programs, and with them the job's VMs.
func (s *Set) loseToClock(m *Machine, wrong error) {
	s.Stopped(m.Plan.UUID, fmt.Sprintf("cannot go on: %v", wrong))
}

func isClockError(err error) bool {
	var wrong *guest.ClockError
	return errors.As(err, &wrong)
}
