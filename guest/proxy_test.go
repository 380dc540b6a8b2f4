package guest

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// startRelay returns a relay's session to v and what Proxy returns.
func startRelay(t *testing.T, v *vm, rewrite func(*Header) error) (*Session, <-chan error) {
	t.Helper()
	near, far := wire(t)
	mux, err := NewRelay(far)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- Proxy(t.Context(), mux, v.Session, rewrite) }()
	relay, err := NewSession(near)
	if err != nil {
		t.Fatal(err)
	}
	return relay, done
}

func asIs(*Header) error { return nil }

func TestProxy(t *testing.T) {
	v := startVM(t)
	relay, done := startRelay(t, v, func(h *Header) error {
		if h.Command != nil {
			h.Command.Env = append(h.Command.Env, "FORCED=yes")
		}
		return nil
	})
	in := strings.Repeat("0123456789abcde\n", 1<<16)
	got := finish(t, start(t, relay, shell("cat; echo $FORCED >&2; exit 9")), in)
	if got.stdout != in || got.stderr != "yes\n" || got.exit.Code != 9 {
		t.Errorf("%d of %d bytes, %q, %v", len(got.stdout), len(in), got.stderr, got.exit)
	}
	_ = relay.Close()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if n := v.mux.NumStreams(); n != 0 {
		t.Errorf("%d streams are left open", n)
	}
}

func TestProxyPassesProgramsOnly(t *testing.T) {
	v := startVM(t)
	relay, _ := startRelay(t, v, asIs)
	_, setup := relay.Setup(t.Context(), Setup{HostName: "mine"})
	_, dial := relay.Dial(t.Context(), 22)
	for name, err := range map[string]error{
		"setup": setup,
		"hosts": relay.SetHosts(t.Context(), []Host{{Name: "vm0", Address: "10.0.0.1"}}),
		"ssh":   relay.StartSSH(t.Context(), SSH{}),
		"dial":  dial,
	} {
		if err == nil || !strings.Contains(err.Error(), "a relay may only run programs") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if v.machine.setup.HostName != "" {
		t.Error("the setup reached the VM")
	}
	_ = relay.Close()
}

func TestProxyRefuses(t *testing.T) {
	v := startVM(t)
	relay, _ := startRelay(t, v, func(*Header) error { return errors.New("the job is ending") })
	if _, err := relay.Start(t.Context(), shell("true")); err == nil || !strings.Contains(err.Error(), "the job is ending") {
		t.Errorf("start = %v", err)
	}
	_ = relay.Close()
}

func TestProxyBoundsARelay(t *testing.T) {
	v := startVM(t)
	relay, done := startRelay(t, v, asIs)
	for range relayStreams + 1 {
		if _, err := relay.mux.OpenStream(); err != nil {
			break
		}
	}
	select {
	case err := <-done:
		if err != nil {
			t.Error(err)
		}
	case <-time.After(20 * time.Second):
		t.Fatalf("a relay with %d streams goes on", relayStreams+1)
	}
	<-relay.Done()
}

// A relay that dies, at any moment, takes its program with it, also what has
// left its session; and Proxy knows when that is done.
func TestDeadRelay(t *testing.T) {
	v := startVM(t)
	relay, done := startRelay(t, v, asIs)
	p := start(t, relay, shell("setsid sh -c 'setsid sleep 1000 & sleep 1000' & echo up; cat /dev/zero >&2"))
	expectLine(t, p.Stdout, "up")
	if there, err := os.ReadDir(v.dir); err != nil || countDirs(there) == 0 || v.mux.NumStreams() == 0 {
		t.Fatalf("a program that runs has cgroups %v and %d streams, %v", there, v.mux.NumStreams(), err)
	}
	_ = relay.Close()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if left, err := os.ReadDir(v.dir); err != nil || countDirs(left) > 0 {
		t.Errorf("cgroups after the relay: %v, %v", left, err)
	}
	if n := v.mux.NumStreams(); n != 0 {
		t.Errorf("%d streams are left open", n)
	}
	if got := finish(t, start(t, v.Session, shell("echo alive")), ""); got.stdout != "alive\n" {
		t.Errorf("afterwards: %+v", got)
	}
}

func countDirs(entries []os.DirEntry) (n int) {
	for _, e := range entries {
		if e.IsDir() {
			n++
		}
	}
	return n
}

func TestRelayOfALostVM(t *testing.T) {
	v := startVM(t)
	relay, done := startRelay(t, v, asIs)
	p := start(t, relay, shell("echo up; sleep 1000"))
	expectLine(t, p.Stdout, "up")
	_ = v.Session.Close()
	if err := <-done; !errors.Is(err, ErrLost) {
		t.Errorf("proxy = %v, want %v", err, ErrLost)
	}
	if _, err := p.Wait(); !errors.Is(err, ErrLost) {
		t.Errorf("wait = %v, want %v", err, ErrLost)
	}
}

func TestProxyEndsWithItsContext(t *testing.T) {
	v := startVM(t)
	near, far := wire(t)
	mux, err := NewRelay(far)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- Proxy(ctx, mux, v.Session, asIs) }()
	relay, err := NewSession(near)
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, relay, shell("echo up; sleep 1000"))
	expectLine(t, p.Stdout, "up")
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	<-relay.Done()
}

// One relay that reads nothing holds up neither another relay nor the VM.
func TestStoppedRelay(t *testing.T) {
	v := startVM(t)
	near, far := wire(t)
	mux, err := NewRelay(far)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = Proxy(t.Context(), mux, v.Session, asIs) }()
	tap := &tappedConn{Conn: near, open: make(chan struct{})}
	close(tap.open)
	stopped, err := NewSession(tap)
	if err != nil {
		t.Fatal(err)
	}
	p := start(t, stopped, shell("echo up; cat /dev/zero"))
	expectLine(t, p.Stdout, "up")
	tap.stop()

	relay, _ := startRelay(t, v, asIs)
	if got := finish(t, start(t, relay, shell("head -c 3000000 /dev/zero | wc -c; head -c 3000000 /dev/zero >&2")), ""); got.stdout != "3000000\n" || len(got.stderr) != 3000000 {
		t.Errorf("the other relay: %q, %d bytes", got.stdout, len(got.stderr))
	}
	_ = relay.Close()
	_ = near.SetReadDeadline(time.Unix(1, 0))
	_ = near.Close()
}

// Proxy says whether the guest has confirmed that nothing of a program is left.
func TestProxyAwaitsConfirmation(t *testing.T) {
	const accepted, started, exited, gone = `{"program":"p"}`, `{"started":true}`, `{"exit":{"code":0}}`, `{"gone":true}`
	tests := map[string]struct {
		events    []string
		confirmed bool
	}{
		"a program that is gone":              {[]string{accepted, started, exited, gone}, true},
		"a program of which something stays":  {[]string{accepted, started, exited}, false},
		"a program that was not started":      {[]string{accepted, `{"error":"start a process: no"}`}, true},
		"a refused program":                   {[]string{`{"error":"no"}`}, true},
		"words without an end":                {[]string{accepted, started, strings.Repeat("x", 2*maxAnswer), gone}, true},
		"a confirmation inside another event": {[]string{accepted, started, `{"error":"{\"gone\":true}"}`}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			relay, done := startRelay(t, &vm{Session: scriptedGuest(t, tt.events)}, asIs)
			command := shell("true")
			st, err := relay.open(t.Context(), Header{Kind: kindProgram, Command: &command})
			if err != nil {
				t.Fatal(err)
			}
			st.Finish()
			_ = relay.Close()
			if err := <-done; (err == nil) != tt.confirmed {
				t.Errorf("proxy = %v", err)
			}
		})
	}
}

// scriptedGuest is a session to a guest that says the events to the first program.
func scriptedGuest(t *testing.T, events []string) *Session {
	t.Helper()
	near, far := wire(t)
	mux, err := serverSession(far)
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		raw, err := mux.AcceptStream()
		if err != nil {
			return
		}
		st := newStream(raw)
		_, _ = st.Write([]byte(strings.Join(events, "\n") + "\n"))
		st.Finish()
	}()
	s, err := NewSession(near)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}
