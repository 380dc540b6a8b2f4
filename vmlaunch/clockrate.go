package vmlaunch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

// clockPeriod is how often the clocks of running VMs are measured. firstClockPeriod is
// until the first time.
const (
	firstClockPeriod = 2 * time.Second
	clockPeriod      = 30 * time.Second
)

// beginClockCheck measures the rate of the VM's clock while the VM is set up. The caller
// calls end then, whose error says that the VM cannot be used.
//
// A VM that boots is not ready before the rate is known: its kernel has just measured its
// clock, and may have done that while it had no CPU. A restored VM has the clock of its
// template, which was right. So it need not wait: a rate that is obviously wrong is found
// now, and the rest by [Node.watchClock].
func (n *Node) beginClockCheck(ctx context.Context, m *machine) (end func() error) {
	m.meter = m.session.NewMeter()
	if m.restoring {
		_, err := m.meter.Read(ctx)
		return func() error { return errors.Join(err, n.glanceAtClock(ctx, m)) }
	}
	done := make(chan error, 1)
	go func() { done <- n.checkClock(ctx, m) }()
	return func() error { return <-done }
}

// checkClock returns when the rate of the VM's clock is known and right. If it is wrong it
// tries the kernel's other clock sources first.
func (n *Node) checkClock(ctx context.Context, m *machine) error {
	rate, err := m.meter.Measure(ctx)
	if err == nil && rate.Wrong() {
		rate, err = n.mendClock(ctx, m, rate)
	}
	if err != nil {
		return err
	}
	return n.noteClock(ctx, m, rate)
}

// glanceAtClock reads the clock once, and checks it only if it is wrong by that.
func (n *Node) glanceAtClock(ctx context.Context, m *machine) error {
	rate, err := m.meter.Read(ctx)
	switch {
	case err != nil:
		return err
	case rate.Wrong():
		return n.checkClock(ctx, m)
	case rate.Known():
		return n.noteClock(ctx, m, rate)
	}
	return nil
}

// mendClock gives the VM's kernel another clock source.
func (n *Node) mendClock(ctx context.Context, m *machine, wrong guest.Rate) (guest.Rate, error) {
	n.log.Warn("clock is wrong", "vm", m.plan.Name, "rate", wrong)
	rate, err := m.meter.Mend(ctx, wrong)
	if err == nil {
		n.log.Info("clock is mended", "vm", m.plan.Name, "rate", rate)
	}
	return rate, err
}

// noteClock keeps what is known of the VM's clock, for people and programs. It logs the
// first rate, and others when the clock source has changed.
func (n *Node) noteClock(ctx context.Context, m *machine, rate guest.Rate) error {
	source, err := m.session.ClockSource(ctx)
	if err != nil {
		return err
	}
	m.mu.Lock()
	before := m.clockRate
	m.clockRate = &nodeagent.Clock{Rate: rate.Value(), Error: rate.Error(), Source: source.Current}
	m.mu.Unlock()
	if before == nil || before.Source != source.Current {
		n.log.Info("clock measured", "vm", m.plan.Name, "rate", rate, "source", source.Current)
	}
	return nil
}

// watchClocks measures the clocks of the VMs until ctx ends. If the clock of a VM has
// become wrong and cannot be mended, the VM is lost to the job.
func (n *Node) watchClocks(ctx context.Context) {
	for _, m := range n.machines {
		if m.meter != nil {
			go n.watchClock(ctx, m)
		}
	}
}

func (n *Node) watchClock(ctx context.Context, m *machine) {
	for pause := firstClockPeriod; ; pause = clockPeriod {
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
		err := n.measureAgain(ctx, m)
		switch {
		case err == nil:
			continue
		case isClockError(err):
			n.loseToClock(m, err)
		case ctx.Err() == nil && m.session.Err() == nil:
			n.log.Warn("clock is not watched any more", "vm", m.plan.Name, "error", err)
		}
		return
	}
}

// measureAgain measures the mean rate since the last time. If that is wrong, what counts
// is the rate now: Slurm may have stopped the VM meanwhile (scontrol suspend), and some
// clock sources do not count such times.
func (n *Node) measureAgain(ctx context.Context, m *machine) error {
	rate, err := m.meter.Measure(ctx)
	if err != nil {
		return err
	}
	m.meter.Restart()
	if rate.Wrong() {
		return n.checkClock(ctx, m)
	}
	return n.noteClock(ctx, m, rate)
}

// loseToClock ends the programs of a VM with a wrong clock, and the job's VMs.
func (n *Node) loseToClock(m *machine, wrong error) {
	n.stopped(m.plan.UUID, fmt.Sprintf("cannot go on: %v", wrong))
}

func isClockError(err error) bool {
	var wrong *guest.ClockError
	return errors.As(err, &wrong)
}
