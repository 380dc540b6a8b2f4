package guest

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// clockSources are the clock sources to try if the current one is wrong, the best first.
// The kernel knows the rates of the first three. It has to measure the rate of the
// time-stamp counter (tsc) when it starts.
var clockSources = []string{"kvm-clock", "hpet", "acpi_pm", "tsc"}

// A ClockSource is the hardware clock from which a VM's kernel takes its time, and those
// that it could use.
type ClockSource struct {
	Current   string
	Available []string
}

// A ClockError says that a VM's clock is wrong and cannot be mended.
type ClockError struct {
	Rate   ClockRate
	Source string   // the clock source with this rate
	Tried  []string // the other clock sources, which are wrong too or do not work
}

func (e *ClockError) Error() string {
	tried := "its kernel has no other clock source"
	if len(e.Tried) > 0 {
		tried = "no other clock source of its kernel is right (tried " + strings.Join(e.Tried, ", ") + ")"
	}
	return fmt.Sprintf("its clock runs %v times as fast as the node's, by clock source %s, and %s; "+
		"kernels measure their clocks wrongly when the node is overloaded while they start: submit the job again",
		e.Rate, e.Source, tried)
}

// Mend makes the VM's kernel try its other clock sources until the rate is right, and
// returns that rate. wrong is the rate with the current source. If no source is right, the
// error is a [*ClockError].
func (m *Meter) Mend(ctx context.Context, wrong ClockRate) (ClockRate, error) {
	source, err := m.session.ClockSource(ctx)
	if err != nil {
		return wrong, err
	}
	failure := &ClockError{Rate: wrong, Source: source.Current}
	for _, name := range source.others() {
		failure.Tried = append(failure.Tried, name)
		if err := m.session.setClockSource(ctx, name); err != nil {
			if ctx.Err() != nil || m.session.Err() != nil {
				return wrong, err
			}
			continue // the kernel refuses it
		}
		m.readings = nil // they are readings of the former clock source
		rate, err := m.Measure(ctx)
		if err != nil || !rate.Wrong() {
			return rate, err
		}
	}
	return wrong, failure
}

// others returns the sources to try instead of the current one, the best first.
func (s ClockSource) others() []string {
	return slices.DeleteFunc(slices.Clone(clockSources), func(name string) bool {
		return name == s.Current || !slices.Contains(s.Available, name)
	})
}

// ClockSource asks for the VM's clock sources.
func (s *Session) ClockSource(ctx context.Context) (ClockSource, error) {
	a, err := s.ask(ctx, Header{Kind: kindClockSource})
	if err != nil {
		return ClockSource{}, fmt.Errorf("ask for the VM's clock source: %w", err)
	}
	return ClockSource{Current: printable(a.Source), Available: a.Sources}, nil
}

func (s *Session) setClockSource(ctx context.Context, name string) error {
	if _, err := s.ask(ctx, Header{Kind: kindClockSource, Source: name}); err != nil {
		return fmt.Errorf("set the VM's clock source to %s: %w", name, err)
	}
	return nil
}
