package main

import (
	"bytes"
	"context"
	"errors"
	"os"
	"sync/atomic"
	"time"

	"github.com/slurm-v/slurm-v/internal/netlab"
)

// A stream is what a guest sends its partner, as much as it can, and the partner's count.
type stream struct {
	pair
	arrived atomic.Uint64 // bytes, counting whole frames
	counted chan error

	stop context.CancelFunc // nil while the guest does not send
	sent chan error
}

// openStream begins to count.
func openStream(p pair) *stream {
	s := &stream{pair: p, counted: make(chan error, 1)}
	go func() { s.counted <- s.count() }()
	return s
}

func (s *stream) count() error {
	frame := make([]byte, 1<<16)
	for {
		n, err := s.partner.Receive(frame, time.Time{})
		if err != nil {
			return err
		}
		if isFor(s.partner, frame[:n]) {
			s.arrived.Add(uint64(n))
		}
	}
}

// isFor tells a guest's frames from broadcasts.
func isFor(g *netlab.Guest, frame []byte) bool { return bytes.HasPrefix(frame, g.MAC) }

// start sends rate bits per second, until end.
func (s *stream) start(rate float64) {
	var ctx context.Context
	ctx, s.stop = context.WithCancel(context.Background())
	s.sent = make(chan error, 1)
	go func() { s.sent <- s.guest.Flood(ctx, s.there(), rate) }()
}

func (s *stream) end() error {
	s.stop()
	s.stop = nil
	return <-s.sent
}

// close returns an error if the stream stopped sending or counting early.
func (s *stream) close() error {
	var errs []error
	if s.stop != nil {
		errs = append(errs, s.end())
	}
	errs = append(errs, s.pair.close())
	if err := <-s.counted; !errors.Is(err, os.ErrClosed) {
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
