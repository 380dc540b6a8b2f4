package controller

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"
)

func (b *bench) setSteps(job uint32, steps ...string) {
	b.t.Helper()
	b.change(func(w *world) {
		j := w.Jobs[job]
		j.Steps = steps
		w.Jobs[job] = j
	})
}

func TestStepsThatHaveEndedGiveBackTheirMulticastAddresses(t *testing.T) {
	b := newBench(t)
	m := withCollectives(b)
	b.mustStart(run(7, 0), "vni:1")
	b.mustStart(run(8, 0), "vni:1")
	b.setSteps(7, "batch", "2")
	b.setSteps(8, "0")
	m.steps["c-7.0"] = []string{"0", "1", "2"} // the programs of 0 and 1 were killed
	m.steps["c-8.0"] = []string{"0"}
	m.asked = 0
	b.sweep()
	if !slices.Equal(m.steps["c-7.0"], []string{"2"}) || !slices.Equal(m.steps["c-8.0"], []string{"0"}) || m.asked != 3 { // one for the list
		t.Errorf("left are %v; it was asked %d times", m.steps, m.asked)
	}
	if !m.sessions["c-7.0"] || !m.sessions["c-8.0"] || len(b.warnings) > 0 {
		t.Errorf("the sessions are %v, %q", m.sessions, b.warnings)
	}
}

// A step begins and gets multicast addresses after slurmctld was asked, if it was asked first.
func TestAStepThatHasJustBegunKeepsItsMulticastAddresses(t *testing.T) {
	b := newBench(t)
	m := withCollectives(b)
	b.mustStart(run(7, 0), "vni:1")
	b.setSteps(7, "batch")
	m.looked = func() {
		b.setSteps(7, "batch", "0")
		m.steps["c-7.0"] = []string{"0"}
	}
	b.sweep()
	if !slices.Equal(m.steps["c-7.0"], []string{"0"}) {
		t.Errorf("left are %v", m.steps)
	}
}

// The leader has the session.
func TestStepsOfAHeterogeneousJobsComponents(t *testing.T) {
	b := newBench(t)
	m := withCollectives(b)
	b.mustStart(run(7, 0), "vni:1")
	b.change(func(w *world) {
		w.Jobs[8] = job{State: "RUNNING", Nodes: "n3", HetJob: 7, Steps: []string{"3"}}
		w.Jobs[9] = job{State: "RUNNING", Nodes: "n4", HetJob: 6, Steps: []string{"4"}}
	})
	b.setSteps(7, "batch", "5")
	m.steps["c-7.0"] = []string{"3", "4", "5"}
	b.sweep()
	if !slices.Equal(m.steps["c-7.0"], []string{"3", "5"}) {
		t.Errorf("left are %v", m.steps)
	}
}

func TestSlurmctldThatDoesNotAnswerEndsNoStep(t *testing.T) {
	b := newBench(t)
	m := withCollectives(b)
	b.mustStart(run(7, 0), "vni:1")
	m.steps["c-7.0"] = []string{"0"}
	b.change(func(w *world) { w.Down = true })
	if _, err := b.sweepManagers(t.Context()); err == nil || len(m.steps["c-7.0"]) != 1 {
		t.Errorf("error %v, left are %v", err, m.steps)
	}
}

func TestAFabricManagerThatHangsIsNotAskedForSteps(t *testing.T) {
	b := newBench(t)
	m := withCollectives(b)
	b.mustStart(run(7, 0), "vni:1")
	m.down, m.looked = context.DeadlineExceeded, func() { t.Error("it is asked again") }
	if _, err := b.sweepManagers(t.Context()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
}

func TestEndedSteps(t *testing.T) {
	tests := map[string]struct{ have, listed, want []string }{
		"one that is listed":                     {[]string{"0"}, []string{"batch", "0"}, nil},
		"one that is not":                        {[]string{"0", "1"}, []string{"1"}, []string{"0"}},
		"while no step of the job is listed":     {[]string{"0"}, nil, nil},
		"the batch step":                         {[]string{"4294967291"}, []string{"batch"}, nil},
		"names that a program has given its own": {[]string{"ƒ3.1", "00", "+1", ""}, []string{"batch"}, nil},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := endedSteps(tt.have, tt.listed); !slices.Equal(got, tt.want) {
				t.Errorf("%q, want %q", got, tt.want)
			}
		})
	}
}

// The process in the background goes on while a job has multicast addresses, and ends with it.
func TestSweepsGoOnForAJobWithMulticastAddresses(t *testing.T) {
	b := newBench(t)
	b.Now = time.Now
	m := withCollectives(b)
	b.mustStart(run(7, 0), "vni:1")
	b.setSteps(7, "batch")
	released := make(chan struct{})
	sweeps := 0
	m.looked = func() {
		if sweeps++; sweeps == 2 { // the first found nothing
			b.setSteps(7)
			b.change(func(w *world) { delete(w.Jobs, 7) })
			close(released)
		}
	}
	l := b.linger()
	l.begin = l.begin.Add(-lingering) // it is late
	done := make(chan error)
	go func() { done <- l.run(t.Context()) }()
	select {
	case <-released:
	case err := <-done:
		t.Fatalf("it ends, and the job goes on: %v", err)
	}
	b.state("n1", id(7, 0))
	b.state("n2", id(7, 0))
	if err := <-done; err != nil || m.sessions["c-7.0"] {
		t.Errorf("%v, left are %v", err, m.sessions)
	}
	if l.steps = true; l.longest() != stepsPause {
		t.Errorf("it pauses %v", l.longest())
	}
}
