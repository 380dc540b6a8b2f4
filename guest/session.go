package guest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"

	"github.com/hashicorp/yamux"
)

// ErrLost matches the errors of all operations that were going on when the channel to the
// guest ended.
var ErrLost = errors.New("the channel to the VM ended")

// A Session is the host's end of the channel to one VM, or a relay's end of
// its connection to a [Proxy]. Its methods may be called at the same time.
type Session struct {
	mux  *yamux.Session
	done chan struct{}

	mu  sync.Mutex
	err error // why the session ended
}

// Connect finds the agent in a VM over rw, however long the VM takes to boot, and opens a
// session. If ctx ends first, or anything fails, it closes rw.
func Connect(ctx context.Context, rw io.ReadWriteCloser) (*Session, error) {
	in, err := greet(ctx, rw)
	if err != nil {
		return nil, err
	}
	return NewSession(joined{in, rw})
}

// NewSession opens a session over a connection that needs no greeting: [NewRelay] serves
// its other end.
func NewSession(rw io.ReadWriteCloser) (*Session, error) {
	mux, err := clientSession(rw)
	if err != nil {
		return nil, fmt.Errorf("open a session: %w", err)
	}
	s := &Session{mux: mux, done: make(chan struct{})}
	go s.watch()
	return s, nil
}

// joined is a connection that is read through another reader.
type joined struct {
	io.Reader
	conn io.ReadWriteCloser
}

func (j joined) Write(p []byte) (int, error) { return j.conn.Write(p) }
func (j joined) Close() error                { return j.conn.Close() }

// watch waits for the session's end. Only this end opens streams, so a guest that opens one
// does not run our agent.
func (s *Session) watch() {
	_, err := accept(s.mux)
	if err == nil {
		err = errors.New("the guest opened a stream")
		_ = s.mux.Close()
	}
	if errors.Is(err, yamux.ErrInvalidVersion) {
		err = errors.New("the agent in the VM was started again")
	}
	s.mu.Lock()
	s.err = err
	s.mu.Unlock()
	close(s.done)
}

// Done is closed when the session has ended.
func (s *Session) Done() <-chan struct{} { return s.done }

// Err says why the session ended; nil before.
func (s *Session) Err() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrLost, s.err)
}

// Close ends the session and the connection below it. The guest then kills all programs.
func (s *Session) Close() error { return s.mux.Close() }

// Setup makes the VM a member of the job's cluster.
func (s *Session) Setup(ctx context.Context, setup Setup) (Report, error) {
	a, err := s.ask(ctx, Header{Kind: kindSetup, Setup: &setup})
	if err != nil {
		return Report{}, fmt.Errorf("set up the VM: %w", err)
	}
	if a.Report == nil {
		return Report{}, errors.New("set up the VM: the guest sent no report")
	}
	a.Report.clean()
	return *a.Report, nil
}

// SetHosts makes the names of the VM cluster known in the VM.
func (s *Session) SetHosts(ctx context.Context, hosts []Host) error {
	if _, err := s.ask(ctx, Header{Kind: kindHosts, Hosts: hosts}); err != nil {
		return fmt.Errorf("make the VMs' names known: %w", err)
	}
	return nil
}

// StartSSH starts an SSH server in the VM.
func (s *Session) StartSSH(ctx context.Context, ssh SSH) error {
	if _, err := s.ask(ctx, Header{Kind: kindSSH, SSH: &ssh}); err != nil {
		return fmt.Errorf("start an SSH server in the VM: %w", err)
	}
	return nil
}

// Dial connects to a port of the guest's loopback.
func (s *Session) Dial(ctx context.Context, port uint16) (net.Conn, error) {
	st, err := s.open(ctx, Header{Kind: kindDial, Port: port})
	if err == nil {
		_, err = s.answer(ctx, st)
	}
	if err != nil {
		return nil, fmt.Errorf("connect to port %d in the VM: %w", port, err)
	}
	return &dialed{stream: st}, nil
}

// ask sends a request and returns its answer.
func (s *Session) ask(ctx context.Context, h Header) (answer, error) {
	st, err := s.open(ctx, h)
	if err != nil {
		return answer{}, err
	}
	a, err := s.answer(ctx, st)
	go st.Finish()
	return a, err
}

// answer reads a request's answer. If the answer has an error, answer returns it. On any
// error it closes the stream.
func (s *Session) answer(ctx context.Context, st *stream) (a answer, err error) {
	defer func() {
		if err != nil {
			go st.Finish()
		}
	}()
	stop := context.AfterFunc(ctx, st.Abandon)
	err = st.readJSON(&a, maxAnswer)
	switch {
	case !stop():
		return a, context.Cause(ctx)
	case err != nil:
		return a, s.cause(err)
	case a.Error != "":
		return a, errors.New(printable(a.Error))
	}
	return a, nil
}

// open opens a stream and sends its header.
func (s *Session) open(ctx context.Context, h Header) (*stream, error) {
	line, err := headerLine(h)
	if err != nil {
		return nil, err
	}
	if s.mux.NumStreams() >= maxStreams {
		return nil, fmt.Errorf("the VM has %d streams open, which is the limit", maxStreams)
	}
	raw, err := openStream(ctx, s.mux)
	if err != nil {
		return nil, s.cause(err)
	}
	st := newStream(raw)
	stop := context.AfterFunc(ctx, st.Abandon)
	_, err = st.Write(line)
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		go st.Finish()
		return nil, s.cause(err)
	}
	return st, nil
}

// openStream opens a stream. It waits until the peer has accepted most earlier streams, or
// ctx ends.
func openStream(ctx context.Context, mux *yamux.Session) (*yamux.Stream, error) {
	type result struct {
		raw *yamux.Stream
		err error
	}
	opened := make(chan result, 1)
	go func() {
		raw, err := mux.OpenStream()
		opened <- result{raw, err}
	}()
	select {
	case r := <-opened:
		return r.raw, r.err
	case <-ctx.Done():
		go func() {
			if r := <-opened; r.err == nil {
				newStream(r.raw).Finish()
			}
		}()
		return nil, context.Cause(ctx)
	}
}

// cause returns the reason for the session's end if it has ended, else err. A relay may
// notice the loss of the VM first by the end of a stream. And if another agent has taken
// the place of the VM's agent, the first sign may be an answer that the former agent began.
func (s *Session) cause(err error) error {
	if s.mux.IsClosed() {
		<-s.done
		return s.Err()
	}
	var noJSON *json.SyntaxError
	switch {
	case errors.Is(err, io.EOF):
		return fmt.Errorf("%w: the guest gave no answer", ErrLost)
	case errors.As(err, &noJSON):
		return fmt.Errorf("%w: the guest's answer makes no sense: %w", ErrLost, err)
	}
	return err
}
