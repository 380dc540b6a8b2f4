package guest

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/hashicorp/yamux"
)

// relayStreams bounds what one relay may have open. It runs one program.
const relayStreams = 64

// NewRelay opens the serving end of a session whose other end a relay opened
// with [NewSession]. [Proxy] serves it.
func NewRelay(conn io.ReadWriteCloser) (*yamux.Session, error) {
	relay, err := serverSession(conn)
	if err != nil {
		return nil, fmt.Errorf("open a relay's session: %w", err)
	}
	return relay, nil
}

// Proxy passes the streams of a relay on to a VM, only those that start and
// attend programs. For each it calls rewrite, which may change the header or
// refuse it. When the relay, the VM's session or ctx ends, so do the relay's
// session and its programs. Proxy returns when the guest has confirmed the end
// of all of them or is lost itself, which is the error.
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
	for {
		raw, err := relay.AcceptStream()
		if err != nil {
			break
		}
		if relay.NumStreams() > relayStreams {
			_ = relay.Close()
			break
		}
		streams.Go(func() { pass(ctx, newStream(raw), to, rewrite) })
	}
	cancel()
	streams.Wait()
	return to.Err()
}

// pass carries one stream of a relay.
func pass(ctx context.Context, near *stream, to *Session, rewrite func(*Header) error) {
	far, err := forward(ctx, near, to, rewrite)
	if err != nil {
		// Only a program's control stream has a reader for this.
		_ = writeLine(near, event{Error: err.Error()})
		near.Finish()
		return
	}
	splice(near, far)
}

// forward opens in the VM what the relay asks for.
func forward(ctx context.Context, near *stream, to *Session, rewrite func(*Header) error) (*stream, error) {
	var h Header
	if err := near.readJSON(&h, maxHeader); err != nil {
		return nil, fmt.Errorf("read a relay's request: %w", err)
	}
	switch h.Kind {
	case kindProgram:
		if err := h.Command.check(); err != nil {
			return nil, err
		}
	case kindStdin, kindStdout, kindStderr, kindPMI:
	default:
		return nil, errors.New("a relay may only run programs")
	}
	if err := rewrite(&h); err != nil {
		return nil, err
	}
	return to.open(ctx, h)
}

// splice joins two streams until both directions have ended. A half-close
// passes through; when one side is gone, the other is closed.
func splice(a, b *stream) {
	var both sync.WaitGroup
	both.Go(func() { transfer(a, b) })
	both.Go(func() { transfer(b, a) })
	both.Wait()
}

// transfer copies from one stream to the other up to its end.
func transfer(to, from *stream) {
	_, _ = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, chunk))
	to.CloseWrite()
	// If the other side is gone, what still comes must not pile up.
	_, _ = io.Copy(io.Discard, from.raw)
}
