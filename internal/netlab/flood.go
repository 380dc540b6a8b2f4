package netlab

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"sync/atomic"
	"time"
)

// Flood sends packets of the flow until ctx ends, each as large as Ethernet allows, at
// rate bits per second, counting whole frames. It does not react to losses: the network
// drops what it cannot take.
func (g *Guest) Flood(ctx context.Context, flow Flow, rate float64) error {
	const mtu, most = 1500, 20 * time.Millisecond
	frame := flow.UDP(make([]byte, mtu-28))
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	last, due := time.Now(), 0.0
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now := time.Now()
		// After a long delay the lost time is not made up for.
		due += min(now.Sub(last), most).Seconds() * rate / 8 / float64(len(frame))
		last = now
		for ; due >= 1; due-- {
			if err := g.Send(frame); err != nil {
				return err
			}
		}
	}
}

// A Sink counts what arrives at one UDP port.
type Sink struct {
	conn  *net.UDPConn
	bytes atomic.Uint64
	done  chan error
}

// Sink opens a port of the node.
func (n *Node) Sink(addr netip.AddrPort) (*Sink, error) {
	s := &Sink{done: make(chan error, 1)}
	err := n.Do(func() (err error) {
		s.conn, err = net.ListenUDP("udp4", net.UDPAddrFromAddrPort(addr))
		return err
	})
	if err != nil {
		return nil, err
	}
	go func() { s.done <- s.count() }()
	return s, nil
}

func (s *Sink) count() error {
	const headers = 14 + 20 + 8
	buffer := make([]byte, 1<<16)
	for {
		n, err := s.conn.Read(buffer)
		if err != nil {
			return err
		}
		s.bytes.Add(uint64(n) + headers)
	}
}

// Bytes returns how many bytes have arrived, counting whole frames.
func (s *Sink) Bytes() uint64 { return s.bytes.Load() }

// Close returns an error if the sink stopped counting early.
func (s *Sink) Close() error {
	err := s.conn.Close()
	if counted := <-s.done; !errors.Is(counted, net.ErrClosed) && !errors.Is(counted, os.ErrClosed) {
		return counted
	}
	return err
}
