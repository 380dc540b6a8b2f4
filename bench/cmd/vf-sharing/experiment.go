package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/slurm-v/slurm-v/config"
)

// A sender is a VM that sends as much as it can from iteration first to last.
type sender struct {
	kind        string
	percent     uint32 // its minimum, of the link
	first, last int
}

func (s sender) sends(iteration int) bool { return s.first <= iteration && iteration <= s.last }

// A scenario says which VMs share the link. Each sends surplus times the rate of the link:
// more than it can get, and not more than the machine can count.
type scenario struct {
	senders    []sender
	iterations int
	surplus    float64
}

// three is ConRDMA's first experiment.
var three = scenario{
	senders:    []sender{{"video", 60, 1, 20}, {"AI", 30, 6, 30}, {"file", 10, 11, 40}},
	iterations: 40, surplus: 1.2,
}

// An experiment is one run of a scenario, with minima or without.
type experiment struct {
	scenario
	link     config.Rate
	interval time.Duration
	minima   bool
}

// A result says how much of each sender arrived in each iteration, in Mb/s.
type result struct {
	experiment
	samples [][]float64
}

// expected returns how much of each sender should arrive in an iteration. The active
// senders share the link, in proportion to their minima. Those without a minimum share
// equally what is left when nobody has one.
func (e experiment) expected(iteration int) []float64 {
	weights := e.weights(iteration, e.minima)
	if sum(weights) == 0 {
		weights = e.weights(iteration, false)
	}
	whole := sum(weights)
	for i := range weights {
		weights[i] *= float64(e.link) / whole
	}
	return weights
}

func (e experiment) weights(iteration int, minima bool) []float64 {
	weights := make([]float64, len(e.senders))
	for i, s := range e.senders {
		switch {
		case s.sends(iteration) && minima:
			weights[i] = float64(s.percent)
		case s.sends(iteration):
			weights[i] = 1
		}
	}
	return weights
}

func sum(values []float64) (whole float64) {
	for _, v := range values {
		whole += v
	}
	return whole
}

// runBoth runs a scenario with minima and without.
func (s scenario) runBoth(link config.Rate, interval time.Duration) (results []result, err error) {
	for _, minima := range []bool{true, false} {
		r, err := experiment{scenario: s, link: link, interval: interval, minima: minima}.run()
		if err != nil {
			return nil, err
		}
		results = append(results, r)
	}
	return results, nil
}

func (e experiment) run() (r result, err error) {
	b, err := lay(e.link)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	streams, err := e.boot(b)
	if err != nil {
		return r, err
	}
	r.experiment = e
	return r, r.measure(streams)
}

func (e experiment) boot(b bed) (streams []*stream, err error) {
	for i, s := range e.senders {
		p, err := b.boot(i, e.minimum(s))
		if err != nil {
			return nil, fmt.Errorf("VM %d (%s): %w", i, s.kind, err)
		}
		streams = append(streams, openStream(p))
	}
	return streams, nil
}

// minimum returns a sender's minimum in Mb/s.
func (e experiment) minimum(s sender) uint32 {
	if !e.minima {
		return 0
	}
	return uint32(e.link) * s.percent / 100
}

// measure starts and stops the streams and counts once per iteration.
func (r *result) measure(streams []*stream) error {
	last, since := make([]uint64, len(streams)), time.Now()
	next := time.NewTicker(r.interval)
	defer next.Stop()
	for iteration := 1; iteration <= r.iterations; iteration++ {
		if err := r.direct(streams, iteration); err != nil {
			return err
		}
		now := <-next.C
		r.samples = append(r.samples, sample(streams, last, now.Sub(since)))
		since = now
	}
	return closeAll(streams)
}

// sample returns the Mb/s of each stream since last, and sets last.
func sample(streams []*stream, last []uint64, passed time.Duration) (rates []float64) {
	for i, s := range streams {
		bytes := s.arrived.Load()
		rates = append(rates, float64(bytes-last[i])*8/1e6/passed.Seconds())
		last[i] = bytes
	}
	return rates
}

// direct starts and stops streams, so that only the senders of this iteration send.
func (r *result) direct(streams []*stream, iteration int) error {
	for i, s := range streams {
		switch sends := r.senders[i].sends(iteration); {
		case sends && s.stop == nil:
			s.start(r.surplus * float64(r.link) * 1e6)
		case !sends && s.stop != nil:
			if err := s.end(); err != nil {
				return err
			}
		}
	}
	return nil
}

func closeAll(streams []*stream) error {
	var errs []error
	for _, s := range streams {
		errs = append(errs, s.close())
	}
	return errors.Join(errs...)
}
