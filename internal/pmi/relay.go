package pmi

import (
	"errors"
	"fmt"
	"io"
	"sync"
)

// Relay connects a PMI server, the descriptor of PMI_FD, to a client, the program in a
// VM. It returns when one of them ends, with nil at the end of a stream. The caller then
// closes both, which also ends reading in the other direction.
func Relay(server, client io.ReadWriter, layout Layout) error {
	if layout.VMsPerNode < 1 || layout.Ranks < 1 {
		return fmt.Errorf("relay PMI: %d ranks on nodes of %d VMs cannot be", layout.Ranks, layout.VMsPerNode)
	}
	talk := &conversation{layout: layout, server: server, turn: make(chan struct{}, 1)}
	if layout.Absence != nil {
		layout.Absence.talk.Store(talk)
	}
	defer talk.end()
	toClient := &lockedWriter{w: client}
	done := make(chan error, 2)
	go func() { done <- upstream(talk, client, toClient) }()
	go func() { done <- downstream(talk, server, toClient) }()
	if err := <-done; !errors.Is(err, io.EOF) {
		return err
	}
	return nil
}

func upstream(talk *conversation, client io.Reader, toClient io.Writer) error {
	in := newReader(client)
	for {
		msg, err := in.Next(talk.framing())
		if err != nil {
			return fmt.Errorf("relay PMI from the program: %w", err)
		}
		forward, answer, err := talk.request(msg)
		if err != nil {
			return err
		}
		if err := talk.send(forward); err != nil {
			return fmt.Errorf("relay PMI to slurmstepd: %w", err)
		}
		if err := writeMessage(toClient, answer); err != nil {
			return fmt.Errorf("relay PMI to the program: %w", err)
		}
	}
}

func downstream(talk *conversation, server io.Reader, toClient io.Writer) error {
	in := newReader(server)
	first := true
	for {
		// The answer to init is a line even when init asked for PMI-2.
		d := pmi1
		if !first {
			d = talk.framing()
		}
		first = false
		msg, err := in.Next(d)
		if err != nil {
			return fmt.Errorf("relay PMI from slurmstepd: %w", err)
		}
		if err := writeMessage(toClient, talk.answer(msg)); err != nil {
			return fmt.Errorf("relay PMI to the program: %w", err)
		}
	}
}

// writeMessage writes a whole message at once: slurmstepd expects one message per read.
func writeMessage(w io.Writer, msg []byte) error {
	if msg == nil {
		return nil
	}
	_, err := w.Write(msg)
	return err
}

// A lockedWriter keeps the messages of two goroutines apart.
type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(p)
}
