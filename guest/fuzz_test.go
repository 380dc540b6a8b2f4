package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
)

// canned is a connection on which one end has said all it will say.
type canned struct {
	io.Reader
	out io.Writer
}

func (c canned) Write(p []byte) (int, error) { return c.out.Write(p) }
func (c canned) Close() error                { return nil }

// recording keeps what is read from a connection.
type recording struct {
	net.Conn
	mu   sync.Mutex
	said bytes.Buffer
}

func (r *recording) Read(p []byte) (int, error) {
	n, err := r.Conn.Read(p)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.said.Write(p[:n])
	return n, err
}

// recordSession returns what host and guest say to each other, without the
// greeting, while a program runs.
func recordSession(f *testing.F) (host, guest []byte) {
	a, b := net.Pipe()
	near, far := &recording{Conn: a}, &recording{Conn: b}
	served := make(chan error)
	go func() { served <- (&Server{Machine: &fakeMachine{}}).Serve(context.Background(), far) }()
	s, err := Connect(context.Background(), near)
	if err != nil {
		f.Fatal(err)
	}
	if _, err := s.Setup(context.Background(), Setup{HostName: "vm0", NICs: []NIC{{MAC: "02:00"}}}); err != nil {
		f.Fatal(err)
	}
	p, err := s.Start(context.Background(), shell("echo hello"))
	if err != nil {
		f.Fatal(err)
	}
	_, _ = io.Copy(io.Discard, p.Stdout)
	_, _ = p.Wait()
	_ = p.Close()
	_ = s.Close()
	<-served
	return afterGreeting(far.said.Bytes()), afterGreeting(near.said.Bytes())
}

func afterGreeting(said []byte) []byte {
	return said[bytes.IndexByte(said, 0):]
}

// Whatever a host says, the guest serves it to its end and changes nothing that
// was not asked for in whole requests.
func FuzzServe(f *testing.F) {
	said, _ := recordSession(f)
	f.Add(said)
	f.Add(said[:len(said)/2])
	f.Fuzz(func(t *testing.T, said []byte) {
		in := io.MultiReader(bytes.NewReader(fmt.Appendf(nil, hello, nonceA)), bytes.NewReader(said))
		if err := fuzzedServer().Serve(t.Context(), canned{in, io.Discard}); err == nil {
			t.Fatal("the host went and there is no error")
		}
	})
}

// fuzzedServer reaches no port. Nor does it run programs: their streams need
// an id that a host which does not listen cannot know.
func fuzzedServer() *Server {
	return &Server{
		Machine: &fakeMachine{},
		connect: func(context.Context, string, string) (net.Conn, error) { return nil, errors.New("no ports") },
	}
}

// Whatever the first line of a stream says, the guest goes on.
func FuzzRequest(f *testing.F) {
	for _, h := range []Header{
		{Kind: kindSetup, Setup: &Setup{HostName: "vm0"}},
		{Kind: kindHosts, Hosts: []Host{{Name: "vm0", Address: "10.0.0.1"}}},
		{Kind: kindProgram, Command: &Command{Args: []string{"true"}, Env: []string{"A=b"}}},
		{Kind: kindStdin, Program: "id"},
		{Kind: kindDial, Port: 22},
	} {
		line, err := headerLine(h)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(line, []byte(`{"signal":15}`+"\n"))
	}
	f.Fuzz(func(t *testing.T, line, rest []byte) {
		host, port := net.Pipe()
		served := make(chan error)
		go func() { served <- fuzzedServer().Serve(context.Background(), port) }()
		s, err := Connect(t.Context(), host)
		if err != nil {
			t.Fatal(err)
		}
		raw, err := s.mux.OpenStream()
		if err != nil {
			t.Fatal(err)
		}
		_, _ = raw.Write(line)
		_, _ = raw.Write(rest)
		newStream(raw).Finish()
		if err := s.SetHosts(t.Context(), nil); err != nil {
			t.Fatalf("the next request: %v", err)
		}
		_ = s.Close()
		<-served
	})
}

// Whatever a guest says, every call of the host's returns.
func FuzzConnect(f *testing.F) {
	_, said := recordSession(f)
	f.Add(said)
	f.Add(said[:len(said)/2])
	f.Fuzz(func(t *testing.T, said []byte) {
		host, port := net.Pipe()
		go func() {
			in := make([]byte, 1<<16)
			n, _ := port.Read(in)
			nonce := bytes.TrimSpace(bytes.TrimPrefix(in[:n], []byte("\nSLURMV1 HELLO ")))
			go func() { _, _ = io.Copy(io.Discard, port) }()
			_, _ = fmt.Fprintf(port, ready, nonce)
			_, _ = port.Write(said)
			_ = port.Close()
		}()
		s, err := Connect(t.Context(), host)
		if err != nil {
			return
		}
		_, _ = s.Setup(t.Context(), Setup{})
		if p, err := s.Start(t.Context(), shell("true")); err == nil {
			_, _ = io.Copy(io.Discard, p.Stdout)
			_, _ = p.Wait()
			_ = p.Close()
		}
		<-s.Done()
		if s.Err() == nil {
			t.Fatal("the guest went and there is no error")
		}
	})
}

// Whatever a relay asks for, nothing but programs reaches the VM.
func FuzzProxy(f *testing.F) {
	said, _ := recordSession(f)
	f.Add(said)
	f.Fuzz(func(t *testing.T, said []byte) {
		host, port := net.Pipe()
		machine := &fakeMachine{}
		served := make(chan error)
		go func() { served <- (&Server{Machine: machine}).Serve(context.Background(), port) }()
		vm, err := Connect(t.Context(), host)
		if err != nil {
			t.Fatal(err)
		}
		relay, err := NewRelay(canned{bytes.NewReader(said), io.Discard})
		if err != nil {
			t.Fatal(err)
		}
		err = Proxy(t.Context(), relay, vm, func(h *Header) error {
			if h.Setup != nil && h.Kind == kindSetup || h.Kind == kindHosts || h.Kind == kindSSH || h.Kind == kindDial {
				t.Errorf("a relay's %q passes", h.Kind)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		_ = vm.Close()
		<-served
		if machine.setup.HostName != "" {
			t.Fatal("a relay set up the VM")
		}
	})
}
