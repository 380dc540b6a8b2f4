package machine

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmstep"
)

// A clockMachine is a VM of which only the clock matters.
type clockMachine struct {
	guest.Machine
	began time.Time
	still chan struct{} // the agent does not answer before it is closed; nil if it answers

	mu     sync.Mutex
	rates  map[string]float64 // of the monotonic clock, by clock source
	source string
}

func (c *clockMachine) Clock(time.Duration) (time.Time, time.Duration, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now(), time.Duration(float64(time.Since(c.began)) * c.rates[c.source]), nil
}

func (c *clockMachine) ClockSource(name string) (guest.ClockSource, error) {
	if c.still != nil {
		<-c.still
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if name != "" {
		c.source = name
	}
	s := guest.ClockSource{Current: c.source}
	for name := range c.rates {
		s.Available = append(s.Available, name)
	}
	return s, nil
}

// setRate makes a clock source run at another rate from now on.
func (c *clockMachine) setRate(source string, rate float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rates[source] = rate
}

// clockVM is a VM of a node whose agent answers.
func clockVM(t *testing.T, inside *clockMachine) (*Set, *Machine) {
	t.Helper()
	inside.began, inside.source = time.Now().Add(-time.Minute), "tsc"
	host, port := net.Pipe()
	server := &guest.Server{Machine: inside}
	served := make(chan error, 1)
	go func() { served <- server.Serve(context.Background(), port) }()
	session, err := guest.Connect(t.Context(), host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = session.Close()
		<-served
	})
	p := plan.Plan{State: t.TempDir(), Job: plan.Job{Node: "n1"}, VMs: []plan.VM{{Name: "vm0", UUID: "u0"}}}
	s := NewSet(p, StartStopwatch(time.Time{}), func(vmstep.Progress) {})
	s.Machines[0].SetSession(session)
	return s, s.Machines[0]
}

// A VM whose clock runs wrong is not used, unless its kernel has a clock that is right.
func TestAVMWithAWrongClockIsNotUsed(t *testing.T) {
	tests := map[string]struct {
		rates  map[string]float64
		source string // that it is used with; "" if it is not used
	}{
		"right":                     {map[string]float64{"tsc": 1, "hpet": 1}, "tsc"},
		"three times too fast":      {map[string]float64{"tsc": 3, "hpet": 3}, ""},
		"twelve times too fast":     {map[string]float64{"tsc": 12}, ""},
		"a little too slow":         {map[string]float64{"tsc": 0.995}, "tsc"},
		"mended by another source":  {map[string]float64{"tsc": 12, "hpet": 1}, "hpet"},
		"mended by the last source": {map[string]float64{"tsc": 3, "hpet": 3, "acpi_pm": 1}, "acpi_pm"},
	}
	for name, tt := range tests {
		for _, restored := range []bool{false, true} {
			t.Run(name+map[bool]string{true: ", restored"}[restored], func(t *testing.T) {
				s, m := clockVM(t, &clockMachine{rates: tt.rates})
				m.restoring = restored
				end := m.BeginClockCheck(t.Context())
				time.Sleep(50 * time.Millisecond) // the setup
				err := end()
				if err == nil && restored { // what was not obvious is found now
					err = m.measureAgain(t.Context())
				}
				var wrong *guest.ClockError
				if errors.As(err, &wrong) != (tt.source == "") || err != nil && wrong == nil {
					t.Fatalf("error = %v", err)
				}
				if err != nil && !strings.Contains(err.Error(), "times as fast as the node's") {
					t.Errorf("error = %v", err)
				}
				checkNoted(t, s, tt.source)
			})
		}
	}
}

// checkNoted checks what people and programs see of the clock.
func checkNoted(t *testing.T, s *Set, source string) {
	t.Helper()
	clock := s.Describe().VMs[0].Clock
	switch {
	case source == "" && clock != nil:
		t.Errorf("clock = %+v", clock)
	case source != "" && (clock == nil || clock.Source != source):
		t.Errorf("clock = %+v, want source %s", clock, source)
	case source != "" && (clock.Rate-clock.Error > 1.01 || clock.Rate+clock.Error < 0.99):
		t.Errorf("clock = %+v", clock)
	}
}

// A VM whose clock becomes wrong later is lost to its job.
func TestAClockThatBecomesWrong(t *testing.T) {
	inside := &clockMachine{rates: map[string]float64{"tsc": 1}}
	s, m := clockVM(t, inside)
	if err := m.BeginClockCheck(t.Context())(); err != nil {
		t.Fatal(err)
	}
	inside.setRate("tsc", 3)
	if err := m.measureAgain(t.Context()); err == nil || !isClockError(err) {
		t.Errorf("error = %v", err)
	}
	s.loseToClock(m, &guest.ClockError{Rate: guest.ClockRate{Low: 3, High: 3}, Source: "tsc"})
	if !closed(s.Gone()) {
		t.Error("the job goes on")
	}
	if err := s.Failure(); err == nil || !strings.HasPrefix(err.Error(), "vm0 on node n1 cannot go on: its clock runs 3.000") {
		t.Errorf("failure = %v", err)
	}
}

// A clock that has stood still or jumped, as while Slurm has stopped the VM, and runs
// right now, is right.
func TestAClockThatHasJumped(t *testing.T) {
	inside := &clockMachine{rates: map[string]float64{"tsc": 1}}
	s, m := clockVM(t, inside)
	if err := m.BeginClockCheck(t.Context())(); err != nil {
		t.Fatal(err)
	}
	inside.mu.Lock()
	inside.began = inside.began.Add(-time.Hour)
	inside.mu.Unlock()
	if err := m.measureAgain(t.Context()); err != nil {
		t.Errorf("error = %v", err)
	}
	checkNoted(t, s, "tsc")
}

// The watch ends with the VM, and says nothing of clocks then.
func TestWatchEndsWithTheVM(t *testing.T) {
	_, m := clockVM(t, &clockMachine{rates: map[string]float64{"tsc": 1}})
	if err := m.BeginClockCheck(t.Context())(); err != nil {
		t.Fatal(err)
	}
	m.EndSession()
	if err := m.measureAgain(t.Context()); err == nil || isClockError(err) {
		t.Errorf("error = %v", err)
	}
}
