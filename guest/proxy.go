package guest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/yamux"
)

// relayStreams bounds how many streams one relay may have open. A relay runs one program.
const relayStreams = 64

// NewRelay opens the end of a session that [Proxy] serves. The relay has opened the other
// end with [NewSession].
func NewRelay(conn io.ReadWriteCloser) (*yamux.Session, error) {
	relay, err := serverSession(conn)
	if err != nil {
		return nil, fmt.Errorf("open a relay's session: %w", err)
	}
	return relay, nil
}

// Proxy passes a relay's streams on to a VM, but only those that start and attend programs.
// It calls rewrite for each stream; rewrite may change the header or refuse it. When the
// relay, the VM's session or ctx ends, Proxy ends the relay's session and its programs, and
// returns when the guest has ended all of them. An error says that the guest is lost, or
// has not confirmed that nothing of a program is left.
func Proxy(ctx context.Context, relay *yamux.Session, to *Session, rewrite func(*Header) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-to.Done():
		case <-ctx.Done():
		}
		_ = relay.Close()
	}()
	var streams sync.WaitGroup
	var unconfirmed atomic.Bool
	for {
		raw, err := relay.AcceptStream()
		if err != nil {
			break
		}
		if relay.NumStreams() > relayStreams {
			_ = relay.Close()
			break
		}
		streams.Go(func() {
			if !pass(ctx, newStream(raw), to, rewrite) {
				unconfirmed.Store(true)
			}
		})
	}
	cancel()
	streams.Wait()
	if !unconfirmed.Load() {
		return to.Err()
	}
	return to.cause(errors.New("the guest has not confirmed that nothing of a program is left"))
}

// pass carries one stream of a relay. It returns false if it has started a program and does
// not know whether something of it is left.
func pass(ctx context.Context, near *stream, to *Session, rewrite func(*Header) error) bool {
	far, kind, err := forward(ctx, near, to, rewrite)
	if err != nil {
		// Only a program's control stream has a reader for this error.
		_ = writeLine(near, event{Error: err.Error()})
		near.Finish()
		return true
	}
	if kind != kindProgram {
		splice(near, far, far)
		return true
	}
	said := &eventReader{from: far}
	splice(near, far, said)
	return said.gone || !said.started
}

// forward opens the stream in the VM that the relay asks for.
func forward(ctx context.Context, near *stream, to *Session, rewrite func(*Header) error) (*stream, string, error) {
	var h Header
	if err := near.readJSON(&h, maxHeader); err != nil {
		return nil, "", fmt.Errorf("read a relay's request: %w", err)
	}
	switch h.Kind {
	case kindProgram:
		if err := h.Command.check(); err != nil {
			return nil, "", err
		}
	case kindStdin, kindStdout, kindStderr, kindPMI:
	default:
		return nil, "", errors.New("a relay may only run programs")
	}
	if err := rewrite(&h); err != nil {
		return nil, "", err
	}
	far, err := to.open(ctx, h)
	return far, h.Kind, err
}

// splice connects two streams until both directions have ended. It passes on the end of one
// direction; when one side is gone, it closes the other. It reads far through said.
func splice(near, far *stream, said io.Reader) {
	var both sync.WaitGroup
	both.Go(func() { transfer(near, said) })
	both.Go(func() { transfer(far, near) })
	both.Wait()
}

// transfer copies one stream to another, until the first one ends.
func transfer(to *stream, from io.Reader) {
	from = struct{ io.Reader }{from}
	_, _ = io.CopyBuffer(struct{ io.Writer }{to}, from, make([]byte, chunk))
	to.CloseWrite()
	// If the writing side is gone, the rest must be read and dropped, so that it does not
	// pile up.
	_, _ = io.Copy(io.Discard, from)
}

// An eventReader passes on a guest's events about a program, and notes the important ones.
type eventReader struct {
	from io.Reader
	line []byte

	started bool // the program may have processes
	gone    bool // none of its processes is left
}

func (r *eventReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	for rest := p[:n]; len(rest) > 0; {
		part, after, ended := bytes.Cut(rest, []byte("\n"))
		r.line = append(r.line, part[:min(len(part), maxAnswer-len(r.line))]...)
		if rest = after; ended {
			r.notice()
		}
	}
	return n, err
}

func (r *eventReader) notice() {
	var e event
	if json.Unmarshal(r.line, &e) == nil {
		r.started = r.started || e.Started
		r.gone = r.gone || e.Gone
	}
	r.line = r.line[:0]
}
