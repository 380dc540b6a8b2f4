package vmlaunch

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmstep"
)

// A clockedGuest has a clock that runs at a rate, and no other, and can become a template.
type clockedGuest struct {
	guest.Machine
	began time.Time
	rate  float64
	ready bool // to be saved
}

func (c *clockedGuest) Clock(time.Duration) (time.Time, time.Duration, error) {
	return time.Now(), time.Duration(float64(time.Since(c.began)) * c.rate), nil
}

func (c *clockedGuest) ClockSource(string) (guest.ClockSource, error) {
	return guest.ClockSource{Current: "tsc", Available: []string{"tsc"}}, nil
}

func (c *clockedGuest) Template(context.Context) error {
	c.ready = true
	return nil
}

// machineOf is a VM in which that guest's agent answers.
func machineOf(t *testing.T, inside guest.Machine) *machine.Machine {
	t.Helper()
	host, port := net.Pipe()
	served := make(chan error, 1)
	go func() { served <- (&guest.Server{Machine: inside}).Serve(context.Background(), port) }()
	session, err := guest.Connect(t.Context(), host)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = session.Close()
		<-served
	})
	one := plan.Plan{VMs: []plan.VM{{Name: "template"}}}
	m := machine.NewSet(one, machine.StartStopwatch(time.Time{}), func(vmstep.Progress) {}).Machines[0]
	m.SetSession(session)
	return m
}

// All VMs from a template have its clock.
func TestATemplateWithAWrongClockIsNotSaved(t *testing.T) {
	for rate, saved := range map[float64]bool{1: true, 12: false} {
		inside := &clockedGuest{began: time.Now().Add(-time.Minute), rate: rate}
		err := readyToSave(t.Context(), machineOf(t, inside))
		var wrong *guest.ClockError
		if errors.As(err, &wrong) == saved || inside.ready != saved {
			t.Errorf("a clock that runs %v times as fast: ready = %v, error = %v", rate, inside.ready, err)
		}
	}
}
