package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/slurm-v/slurm-v/bench/stats"
	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/netlab"
)

// A trial is a VM that exchanges messages with its partner, beside four VMs that send as much
// as they can, or nothing. Minima are percent of the link.
type trial struct {
	name        string
	own, others uint32
	loaded      bool
}

var trials = []trial{
	{"idle link, no minima", 0, 0, false},
	{"idle link, own minimum", 20, 0, false},
	{"full link, no minima", 0, 0, true},
	{"full link, all have minima", 20, 20, true},
	{"full link, only the others have minima", 0, 20, true},
}

const (
	others = 4 // VMs that load the link
	rounds = 3 // of all trials
)

// sizes are those of the messages, in bytes of UDP data. The last two are three frames and
// twelve.
var sizes = []uint32{64, 256, 1024, 4096, 16384}

// A latency is the round trips of a trial by size, in ms, per round.
type latency struct {
	trial
	trips [][][]float64 // by size and round
	load  []float64     // Mb/s of the others that arrived, per round
	lost  int           // messages without an answer
}

// A spread is a value of several rounds: the middle one, the smallest and the largest.
type spread struct{ middle, least, most float64 }

// at returns the spread of a percentile of the round trips of sizes[size].
func (l latency) at(size int, percent float64) spread {
	var values []float64
	for _, round := range l.trips[size] {
		values = append(values, stats.Percentile(round, percent))
	}
	return spread{stats.Median(values), slices.Min(values), slices.Max(values)}
}

// number returns how many messages of sizes[size] were answered.
func (l latency) number(size int) (n int) {
	for _, round := range l.trips[size] {
		n += len(round)
	}
	return n
}

// runLatency runs all trials in each round, so that what else the machine does meets all.
func runLatency(link config.Rate, interval time.Duration) ([]latency, error) {
	results := make([]latency, len(trials))
	for i, t := range trials {
		results[i] = latency{trial: t, trips: make([][][]float64, len(sizes))}
	}
	for range rounds {
		for i := range results {
			if err := results[i].run(link, interval); err != nil {
				return nil, fmt.Errorf("%s: %w", results[i].name, err)
			}
		}
	}
	return results, nil
}

// run adds a round.
func (l *latency) run(link config.Rate, interval time.Duration) (err error) {
	b, err := lay(link)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	percent := func(p uint32) uint32 { return uint32(link) * p / 100 }
	p, err := b.boot(0, percent(l.own))
	if err != nil {
		return err
	}
	streams, err := b.crowd(percent(l.others))
	if err != nil {
		return err
	}
	if l.loaded {
		l.fill(streams, link)
	}
	err = l.exchange(p, streams, link, interval)
	return errors.Join(err, closeAll(streams))
}

// crowd boots the other VMs.
func (b bed) crowd(minimum uint32) (streams []*stream, err error) {
	for i := range others {
		p, err := b.boot(1+i, minimum)
		if err != nil {
			return nil, err
		}
		streams = append(streams, openStream(p))
	}
	return streams, nil
}

// fill sends twice what the link can carry, and waits until its queues are full.
func (l *latency) fill(streams []*stream, link config.Rate) {
	for _, s := range streams {
		s.start(2 * float64(link) * 1e6 / others)
	}
	time.Sleep(500 * time.Millisecond)
}

// exchange sends messages of all sizes back and forth.
func (l *latency) exchange(p pair, streams []*stream, link config.Rate, interval time.Duration) error {
	answered := make(chan error, 1)
	go func() { answered <- answer(p) }()
	last, since := make([]uint64, len(streams)), time.Now()
	sample(streams, last, time.Second) // sets last
	c := caller{inbox: inbox{guest: p.guest}, flow: p.there(), link: float64(link) * 1e6}
	for i, bytes := range sizes {
		trips, lost, err := c.series(bytes, interval)
		if err != nil {
			return errors.Join(err, p.close())
		}
		l.trips[i], l.lost = append(l.trips[i], trips), l.lost+lost
	}
	l.load = append(l.load, sum(sample(streams, last, time.Since(since))))
	err := p.close()
	if stopped := <-answered; !errors.Is(stopped, os.ErrClosed) {
		return stopped
	}
	return err
}

// answer sends each message back, until the guest is closed.
func answer(p pair) error {
	box, frame := inbox{guest: p.partner}, make([]byte, 1<<16)
	for {
		n, err := p.partner.Receive(frame, time.Time{})
		if err != nil {
			return err
		}
		if m, whole := box.take(frame[:n]); whole {
			if err := send(p.partner, m.frames(p.back())); err != nil {
				return err
			}
		}
	}
}

func send(from *netlab.Guest, frames [][]byte) error {
	for _, f := range frames {
		if err := from.Send(f); err != nil {
			return err
		}
	}
	return nil
}

// A caller sends messages and waits for the answer to each. They are at most a tenth of the
// link: half of a minimum, so that the VM does not wait for its own messages.
type caller struct {
	inbox
	flow netlab.Flow
	link float64 // bits per second
	sent uint32  // messages
}

// series sends messages of a size and returns their round trips in ms. It ends after the
// interval, or later if it has few by then.
func (c *caller) series(bytes uint32, interval time.Duration) (trips []float64, lost int, err error) {
	const few = 20
	for begin := time.Now(); ; time.Sleep(c.pause(bytes)) {
		passed := time.Since(begin)
		if passed > 4*interval || passed > interval && len(trips) >= few {
			return trips, lost, nil
		}
		trip, err := c.ask(bytes)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			lost++
		case err != nil:
			return nil, 0, err
		default:
			trips = append(trips, trip.Seconds()*1e3)
		}
	}
}

// pause is random, because the others send in bursts of a millisecond.
func (c *caller) pause(bytes uint32) time.Duration {
	tenth := float64(bytes) * 8 / (c.link / 10) * float64(time.Second)
	return time.Duration(max(float64(time.Millisecond), tenth) * (0.5 + rand.Float64()))
}

// ask sends a message and returns how long the answer took.
func (c *caller) ask(bytes uint32) (time.Duration, error) {
	const patience = 10 * time.Second
	c.sent++
	m := message{c.sent, bytes}
	frames, frame := m.frames(c.flow), make([]byte, 1<<16)
	begin := time.Now()
	if err := send(c.guest, frames); err != nil {
		return 0, err
	}
	for {
		n, err := c.guest.Receive(frame, begin.Add(patience))
		if err != nil {
			return 0, err
		}
		if got, whole := c.take(frame[:n]); whole && got == m {
			return time.Since(begin), nil
		}
	}
}
