package guest

import (
	"context"
	"fmt"
	"slices"
	"strings"
)

// clockSources are those that may take the place of one that is wrong, the best first.
// The kernel knows the rates of the first three. That of the time-stamp counter (tsc) it
// has to measure when it starts.
var clockSources = []string{"kvm-clock", "hpet", "acpi_pm", "tsc"}

// A ClockSource is what a VM's kernel takes its clock from.
type ClockSource struct {
	Current   string
	Available []string
}

// A ClockError says that a VM's clock is wrong and cannot be mended.
type ClockError struct {
	Rate   ClockRate
	Source string   // by which the kernel had this rate
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

// Mend has the VM's kernel try its other clock sources until one is right, and returns
// the rate by that one. The rate by the present one is wrong. If none is right, the error
// is a [*ClockError].
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
		m.readings = nil // of another clock
		rate, err := m.Measure(ctx)
		if err != nil || !rate.Wrong() {
			return rate, err
		}
	}
	return wrong, failure
}

// others are the sources to try in place of the current one, the best first.
func (s ClockSource) others() []string {
	return slices.DeleteFunc(slices.Clone(clockSources), func(name string) bool {
		return name == s.Current || !slices.Contains(s.Available, name)
	})
}

// ClockSource asks what the VM's kernel takes its clock from.
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
