package guest

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/hashicorp/yamux"
)

// A Server is the guest's end of the channel. A program that uses it must call [RunProgram]
// first thing in main.
type Server struct {
	Machine Machine
	// Cgroups has a cgroup for each program. Without it, only the process group of a
	// program is killed, and processes that have left the group survive.
	Cgroups *Cgroups
	Log     *slog.Logger // nil logs nothing

	// connect connects to a port of the loopback; tests set it.
	connect func(ctx context.Context, network, address string) (net.Conn, error)

	setup    sync.Mutex // one change of the machine at a time
	mu       sync.Mutex
	programs map[string]*program

	pmix pmixServers
}

// ErrNoHost matches the error of a [Server] if no host has greeted it.
var ErrNoHost = errors.New("no host")

// Serve waits for one host on the port and serves it until it goes. It then kills all
// programs and closes the port. The error says why the host went.
func (s *Server) Serve(ctx context.Context, port io.ReadWriteCloser) error {
	stop := context.AfterFunc(ctx, func() { _ = port.Close() })
	defer stop()
	in, err := s.awaitHost(port)
	if err != nil {
		_ = port.Close()
		return fmt.Errorf("wait for the host: %w: %w", ErrNoHost, err)
	}
	mux, err := serverSession(joined{in, port})
	if err != nil {
		return fmt.Errorf("serve the host: %w", err)
	}
	ctx, cancel := context.WithCancel(ctx)
	var streams sync.WaitGroup
	err = s.acceptAll(mux, func(st *stream) {
		streams.Go(func() { s.stream(ctx, st) })
	})
	_ = mux.Close()
	cancel()
	streams.Wait()
	return fmt.Errorf("serve the host: %w", err)
}

// awaitHost answers the host's greeting. It first writes the filler: a host whose session
// was with an earlier agent thereby learns that this agent is gone.
func (s *Server) awaitHost(port io.ReadWriter) (io.Reader, error) {
	if _, err := port.Write(filler); err != nil {
		return nil, err
	}
	in := bufio.NewReaderSize(port, 64<<10)
	return in, answerHello(in, port)
}

// acceptAll serves the host's streams until the session ends.
func (s *Server) acceptAll(mux *yamux.Session, serve func(*stream)) error {
	for {
		raw, err := accept(mux)
		if err != nil {
			return err
		}
		if mux.NumStreams() > maxStreams {
			return fmt.Errorf("more than %d streams", maxStreams)
		}
		serve(newStream(raw))
	}
}

// stream serves one stream.
func (s *Server) stream(ctx context.Context, st *stream) {
	h, err := readHeader(st)
	if err != nil {
		_ = writeLine(st, answer{Error: err.Error()})
		st.Finish()
		return
	}
	switch h.Kind {
	case kindProgram:
		s.program(st, h.Command)
	case kindStdin, kindStdout, kindStderr, kindPMI:
		s.attach(st, h)
	case kindMount:
		s.mount(ctx, st, h.Mount)
	case kindEgress:
		s.egress(ctx, st)
	case kindDial:
		s.dial(ctx, st, h.Port)
	case kindClock, kindClockSource:
		_ = writeLine(st, s.clock(h))
		st.Finish()
	default:
		_ = writeLine(st, s.change(ctx, h))
		st.Finish()
	}
}

// readHeader is strict: if this agent does not know a part of the request, the host must
// not believe that it was done.
func readHeader(st *stream) (h Header, err error) {
	line, err := st.readLine(maxHosts)
	if err != nil {
		return h, fmt.Errorf("read a request: %w", err)
	}
	decode := json.NewDecoder(bytes.NewReader(line))
	decode.DisallowUnknownFields()
	if err := decode.Decode(&h); err != nil {
		return h, fmt.Errorf("the agent in the VM does not understand the request (is the image's agent older than the node's?): %w", err)
	}
	return h, nil
}

// change answers the requests that change the machine, one at a time.
func (s *Server) change(ctx context.Context, h Header) answer {
	s.setup.Lock()
	defer s.setup.Unlock()
	var a answer
	var err error
	switch {
	case h.Kind == kindSetup && h.Setup != nil:
		var report Report
		report, err = s.Machine.Setup(ctx, *h.Setup)
		a.Report = &report
	case h.Kind == kindHosts:
		err = s.Machine.SetHosts(ctx, h.Hosts)
	case h.Kind == kindSSH && h.SSH != nil:
		err = s.Machine.StartSSH(ctx, *h.SSH)
	case h.Kind == kindTemplate:
		err = s.Machine.Template(ctx)
	case h.Kind == kindNVDIMM:
		err = s.Machine.ExpectNVDIMMs(ctx)
	default:
		err = fmt.Errorf("the agent in the VM does not know the request %.80q (is the image's agent older than the node's?)", h.Kind)
	}
	if err != nil {
		s.log().Error("request failed", "kind", h.Kind, "err", err)
		return answer{Error: err.Error()}
	}
	return a
}

// clock reads or changes the clock. It does not wait for changes of the machine, because
// the host measures the clock during them.
func (s *Server) clock(h Header) answer {
	var a answer
	var err error
	if h.Kind == kindClock {
		var now time.Time
		var uptime time.Duration
		now, uptime, err = s.Machine.Clock(time.Duration(h.Step))
		a.Time, a.Uptime = now.UnixNano(), int64(uptime)
	} else {
		var source ClockSource
		source, err = s.Machine.ClockSource(h.Source)
		a.Source, a.Sources = source.Current, source.Available
	}
	if err != nil {
		s.log().Error("request failed", "kind", h.Kind, "err", err)
		return answer{Error: err.Error()}
	}
	return a
}

// dial connects the stream to a port of the loopback.
func (s *Server) dial(ctx context.Context, st *stream, port uint16) {
	connect := s.connect
	if connect == nil {
		connect = new(net.Dialer).DialContext
	}
	conn, err := connect(ctx, "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		_ = writeLine(st, answer{Error: err.Error()})
		st.Finish()
		return
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if err := writeLine(st, answer{}); err == nil {
		joinConn(st, conn.(halfCloser), func() {})
	}
	_ = conn.Close()
	st.Finish()
}

// A halfCloser is a connection whose directions can be closed one by one.
type halfCloser interface {
	net.Conn
	CloseWrite() error
}

// joinConn copies between a stream and a connection until both directions have
// ended or one has failed. It calls over when the stream has ended.
func joinConn(st *stream, conn halfCloser, over func()) {
	var both sync.WaitGroup
	both.Go(func() {
		if _, err := io.Copy(conn, struct{ io.Reader }{st}); err != nil {
			_ = conn.Close()
		}
		over()
		_ = conn.CloseWrite()
	})
	both.Go(func() {
		if _, err := io.Copy(struct{ io.Writer }{st}, struct{ io.Reader }{conn}); err != nil {
			_ = conn.Close()
		}
		st.CloseWrite()
	})
	both.Wait()
}

// register gives a program an id that nobody can guess. Otherwise one relay could take
// another's streams: all reach this agent over one channel.
func (s *Server) register(p *program) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.programs) >= maxPrograms {
		return fmt.Errorf("the VM runs %d programs, which is the limit", maxPrograms)
	}
	p.id = newID()
	if s.programs == nil {
		s.programs = map[string]*program{}
	}
	s.programs[p.id] = p
	return nil
}

func newID() string { return rand.Text() }

// forget reports whether the program was the last of its user.
func (s *Server) forget(p *program) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.programs, p.id)
	for _, other := range s.programs {
		if other.cmd.UID == p.cmd.UID {
			return false
		}
	}
	return true
}

// attach hands a stream to its program.
func (s *Server) attach(st *stream, h Header) {
	s.mu.Lock()
	p := s.programs[h.Program]
	s.mu.Unlock()
	if p == nil || !p.offer(h.Kind, st) {
		st.Finish()
	}
}

func (s *Server) log() *slog.Logger {
	if s.Log == nil {
		return slog.New(slog.DiscardHandler)
	}
	return s.Log
}
