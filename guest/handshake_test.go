package guest

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/hashicorp/yamux"
)

// newGreeted is a guest's raw session after the greeting.
func newGreeted(port io.ReadWriteCloser) (*yamux.Session, error) {
	in := bufio.NewReader(port)
	if err := answerHello(in, port); err != nil {
		return nil, err
	}
	return yamux.Server(joined{in, port}, muxConfig())
}

const (
	nonceA = "0123456789abcdef0123456789abcdef"
	nonceB = "fedcba9876543210fedcba9876543210"
)

func TestAnswerHello(t *testing.T) {
	helloA, helloB := fmt.Sprintf(hello, nonceA), fmt.Sprintf(hello, nonceB)
	readyA, readyB := fmt.Sprintf(ready, nonceA), fmt.Sprintf(ready, nonceB)
	tests := map[string]struct {
		input, answers string
	}{
		"at once":                       {helloA, readyA},
		"repeated":                      {helloA + helloA + helloA, readyA},
		"after junk":                    {"\x00\x01junk\x00" + helloA, readyA},
		"after half a greeting":         {"SLURMV1 HELLO 0123" + helloA, readyA},
		"after a long line":             {strings.Repeat("x", 1<<20) + helloA, readyA},
		"after frames of another host":  {"\x00\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x05hello" + helloA, readyA},
		"with filler":                   {helloA + string(filler) + helloA, readyA},
		"two hosts":                     {helloA + helloB + helloB, readyA + readyB},
		"a nonce of the wrong length":   {"\nSLURMV1 HELLO 0123\n" + helloA, readyA},
		"a nonce of the wrong letters":  {fmt.Sprintf(hello, strings.Repeat("G", 32)) + helloA, readyA},
		"a greeting of another version": {strings.Replace(helloB, "V1", "V2", 1) + helloA, readyA},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			frame := "\x00 the first frame"
			in := bufio.NewReader(strings.NewReader(tt.input + frame))
			var answers bytes.Buffer
			if err := answerHello(in, &answers); err != nil {
				t.Fatal(err)
			}
			if answers.String() != tt.answers {
				t.Errorf("answers = %q, want %q", &answers, tt.answers)
			}
			if rest, _ := io.ReadAll(in); string(rest) != frame {
				t.Errorf("left for the session: %q, want %q", rest, frame)
			}
		})
	}
}

func TestAnswerHelloToNobody(t *testing.T) {
	if err := answerHello(bufio.NewReader(strings.NewReader("junk")), io.Discard); err == nil {
		t.Error("no host, and no error")
	}
}

// Bytes of an earlier session on the wire do not disturb the greeting.
func TestConnectAfterJunk(t *testing.T) {
	host, port := wire(t)
	go func() {
		_, _ = port.Write([]byte("login: \x00\x00\nSLURMV1 READY " + nonceA + "\n"))
		_, _ = port.Write(bytes.Repeat([]byte{'x'}, 100000))
		_ = (&Server{Machine: &fakeMachine{}}).Serve(t.Context(), port)
	}()
	s, err := Connect(t.Context(), host)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.SetHosts(t.Context(), nil); err != nil {
		t.Error(err)
	}
	_ = s.Close()
}

// A guest that waits for the rest of a frame when its host is replaced, and
// does not notice that, is freed by the filler.
func TestFillerEndsAnyFrame(t *testing.T) {
	host, port := wire(t)
	served := make(chan error, 1)
	go func() { served <- (&Server{Machine: &fakeMachine{}}).Serve(t.Context(), port) }()

	_, _ = fmt.Fprintf(host, hello, nonceA)
	frame := []byte{0, frameData, 0, 1 /* SYN */, 0, 0, 0, 1, 0, 0, chunk >> 8, chunk & 0xff}
	_, _ = host.Write(append(frame, "cut off"...))
	go func() { _ = repeatHello(host, nonceB, nil) }() // the next host

	if err := <-served; err == nil || !strings.Contains(err.Error(), "invalid protocol version") {
		t.Errorf("served until: %v", err)
	}
}

// A host learns that the guest's agent was replaced, even in the middle of a
// frame, and finds the new one.
func TestAgentThatStartsAgain(t *testing.T) {
	host, port := wire(t)
	go func() {
		mux, err := newGreeted(&keptOpen{Conn: port})
		if err != nil {
			return
		}
		raw, _ := mux.AcceptStream()
		_ = mux.Close() // in the middle of an answer:
		_, _ = port.Write([]byte{0, frameData, 0, 0, 0, 0, 0, byte(raw.StreamID()), 0, 0, chunk >> 8, chunk & 0xff, '{'})
		_ = (&Server{Machine: &fakeMachine{}}).Serve(t.Context(), port)
	}()
	s, err := Connect(t.Context(), &keptOpen{Conn: host})
	if err != nil {
		t.Fatal(err)
	}
	// Which sign of the end comes first is up to the machine's load, and so are the
	// words.
	if err := s.SetHosts(t.Context(), nil); !errors.Is(err, ErrLost) {
		t.Errorf("error = %v", err)
	}
	_ = s.Close() // perhaps nobody has yet
	if s, err = Connect(t.Context(), host); err != nil {
		t.Fatal(err)
	}
	if err := s.SetHosts(t.Context(), nil); err != nil {
		t.Error(err)
	}
	_ = s.Close()
}

// An answer that a new agent's first bytes ended is no answer of the old one.
func TestAnswerThatIsCutShort(t *testing.T) {
	host, port := wire(t)
	go func() {
		mux, err := newGreeted(port)
		if err != nil {
			return
		}
		raw, _ := mux.AcceptStream()
		_, _ = raw.Write([]byte(`{"report": ` + "\n"))
	}()
	s, err := Connect(t.Context(), host)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.SetHosts(t.Context(), nil); !errors.Is(err, ErrLost) {
		t.Errorf("error = %v", err)
	}
}

// keptOpen is a connection that its user cannot close. After Close the user reads nothing
// more from it, and the next user can.
type keptOpen struct {
	net.Conn
	reading sync.Mutex // held in a Read
	closed  atomic.Bool
	once    sync.Once
}

func (k *keptOpen) Read(p []byte) (int, error) {
	k.reading.Lock()
	defer k.reading.Unlock()
	if k.closed.Load() {
		return 0, net.ErrClosed
	}
	return k.Conn.Read(p)
}

func (k *keptOpen) Close() (err error) {
	k.once.Do(func() {
		k.closed.Store(true)
		err = k.SetReadDeadline(past)
		k.reading.Lock()
		defer k.reading.Unlock()
		err = errors.Join(err, k.SetReadDeadline(time.Time{}))
	})
	return err
}

func TestConnectEndsWithItsContext(t *testing.T) {
	host, port := wire(t)
	gone := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	go func() {
		_, _ = port.Read(make([]byte, 100)) // the first greeting
		cancel(gone)
	}()
	if _, err := Connect(ctx, host); !errors.Is(err, gone) {
		t.Errorf("error = %v, want %v", err, gone)
	}
	if _, err := host.Write([]byte("x")); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the connection is still open: %v", err)
	}
}

func TestConnectToNobody(t *testing.T) {
	host, port := wire(t)
	_ = port.Close()
	if _, err := Connect(t.Context(), host); err == nil {
		t.Error("no guest, and no error")
	}
}
