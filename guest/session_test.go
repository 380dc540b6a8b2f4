package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/yamux"
)

func TestSetup(t *testing.T) {
	v := startVM(t)
	setup := Setup{
		HostName: "vm3",
		User:     User{Name: "alice", UID: 1000, GID: 100, Groups: []Group{{"users", 100}}, Home: "/home/alice", Shell: "/bin/sh"},
		Mounts:   []Mount{{Tag: "mnt0", Path: "/data", ReadOnly: true}},
		NICs:     []NIC{{MAC: "02:00:00:00:00:01", Address: "172.30.0.1/16", MTU: 1450}},
		GrowRoot: true,
	}
	report, err := v.Setup(t.Context(), setup)
	if err != nil {
		t.Fatal(err)
	}
	want := Report{OS: "Test OS [2J", Kernel: "6.1", BootSeconds: 1.5}
	if diff := cmp.Diff(want, report); diff != "" {
		t.Errorf("report differs (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(setup, v.machine.setup); diff != "" {
		t.Errorf("setup differs (-want +got):\n%s", diff)
	}
}

func TestHostsAndSSH(t *testing.T) {
	v := startVM(t)
	hosts := []Host{{Name: "vm0", Address: "172.30.0.1"}, {Name: "vm1", Address: "172.30.0.2"}}
	if err := v.SetHosts(t.Context(), hosts); err != nil {
		t.Fatal(err)
	}
	ssh := SSH{User: "alice", AuthorizedKey: "ssh-ed25519 AAAA", HostKey: "key\nkey\n", Listen: []string{"172.30.0.1"}}
	if err := v.StartSSH(t.Context(), ssh); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(hosts, v.machine.hosts) + cmp.Diff(ssh, v.machine.ssh); diff != "" {
		t.Errorf("requests differ (-want +got):\n%s", diff)
	}
}

// The largest job there can be, with two VFs for each VM.
func TestHostsOfTheLargestJob(t *testing.T) {
	v := startVM(t)
	var hosts []Host
	for i := range 1 << 14 {
		name := fmt.Sprintf("vm%d", i)
		hosts = append(hosts, Host{name, "172.30.100.100", "02:00:00:0a:80:02"},
			Host{Name: name + "-vf0", Address: "172.29.100.100"}, Host{Name: name + "-vf1", Address: "172.29.100.100"})
	}
	if err := v.SetHosts(t.Context(), hosts); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(hosts, v.machine.hosts); diff != "" {
		t.Errorf("names differ (-want +got):\n%s", diff)
	}
}

func TestRequestThatFails(t *testing.T) {
	v := startVM(t)
	v.machine.err = errors.New("mount mnt0: no such device\x1b[31m")
	_, err := v.Setup(t.Context(), Setup{})
	if want := "set up the VM: mount mnt0: no such device [31m"; err == nil || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
	err = v.SetHosts(t.Context(), nil)
	if want := "make the VMs' names known: mount mnt0: no such device [31m"; err == nil || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
}

func TestRequestsOfAnotherVersion(t *testing.T) {
	tests := map[string]string{
		"an unknown kind":   `{"kind":"reboot"}`,
		"an unknown wish":   `{"kind":"setup","setup":{"host_name":"vm0","colour":"red"}}`,
		"a wish left out":   `{"kind":"setup"}`,
		"not JSON":          `hello`,
		"a program without": `{"kind":"program"}`,
		"an endless line":   strings.Repeat("x", maxHosts+10),
	}
	v := startVM(t)
	for name, line := range tests {
		t.Run(name, func(t *testing.T) {
			raw, err := v.mux.OpenStream()
			if err != nil {
				t.Fatal(err)
			}
			st := newStream(raw)
			if _, err := io.WriteString(st, line+"\n"); err != nil {
				t.Fatal(err)
			}
			var a answer
			if err := st.readJSON(&a, maxAnswer); err != nil || a.Error == "" {
				t.Errorf("answer = %+v, %v, want an error", a, err)
			}
			st.Finish()
		})
	}
}

func TestDial(t *testing.T) {
	v := startVM(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		text, _ := io.ReadAll(conn)
		_, _ = conn.Write(bytes.ToUpper(text))
		_ = conn.Close()
	}()
	port := uint16(l.Addr().(*net.TCPAddr).Port)
	conn, err := v.Dial(t.Context(), port)
	if err != nil {
		t.Fatal(err)
	}
	_, _ = io.WriteString(conn, "hello")
	_ = conn.(halfWriter).CloseWrite()
	if got, err := io.ReadAll(conn); string(got) != "HELLO" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	_ = conn.Close()
	_ = l.Close()
	if _, err := v.Dial(t.Context(), port); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("a port that nobody listens on: %v", err)
	}
}

type halfWriter interface{ CloseWrite() error }

// When the host goes, so do all programs; another host finds the guest again.
func TestHostsComeAndGo(t *testing.T) {
	server := &Server{Machine: &fakeMachine{}, Cgroups: testCgroups(t)}
	for range 3 {
		host, port := wire(t)
		served := make(chan error, 1)
		go func() { served <- server.Serve(t.Context(), port) }()
		s, err := Connect(t.Context(), host)
		if err != nil {
			t.Fatal(err)
		}
		p := start(t, s, shell("setsid sleep 1000 & echo up; sleep 1000"))
		expectLine(t, p.Stdout, "up")
		_ = s.Close()
		if err := <-served; err == nil || !strings.Contains(err.Error(), "the connection ended") {
			t.Errorf("served until: %v", err)
		}
		if _, err := p.Wait(); !errors.Is(err, ErrLost) {
			t.Errorf("wait = %v, want %v", err, ErrLost)
		}
		if err := p.Close(); !errors.Is(err, ErrLost) {
			t.Errorf("close = %v, want %v", err, ErrLost)
		}
		if _, err := s.Start(t.Context(), shell("true")); !errors.Is(err, ErrLost) {
			t.Errorf("start = %v, want %v", err, ErrLost)
		}
	}
}

// A context that ends while the guest takes its time ends the request.
func TestGuestThatDoesNotAnswer(t *testing.T) {
	host, port := wire(t)
	go func() { _ = quietGuest(port) }()
	s, err := Connect(t.Context(), host)
	if err != nil {
		t.Fatal(err)
	}
	gone := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if _, err := s.Setup(ctx, Setup{}); !errors.Is(err, gone) {
		t.Errorf("setup = %v, want %v", err, gone)
	}
	ctx, cancel = context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() {
		_, err := s.Start(ctx, shell("true"))
		done <- err
	}()
	cancel(gone)
	if err := <-done; !errors.Is(err, gone) {
		t.Errorf("start = %v, want %v", err, gone)
	}
	_ = s.Close()
}

// quietGuest takes streams and says nothing.
func quietGuest(port io.ReadWriteCloser) error {
	mux, err := newGreeted(port)
	if err != nil {
		return err
	}
	for {
		st, err := mux.AcceptStream()
		if err != nil {
			return err
		}
		go func() { _, _ = io.Copy(io.Discard, st) }()
	}
}

func TestHostileGuest(t *testing.T) {
	tests := map[string]struct {
		guest func(*yamux.Session)
		want  string
	}{
		"opens a stream": {func(m *yamux.Session) { _, _ = m.OpenStream() }, "the guest opened a stream"},
		"pings":          {func(m *yamux.Session) { _, _ = m.Ping() }, "the peer pings"},
		"goes away":      {func(m *yamux.Session) { _ = m.Close() }, "the connection ended"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			host, port := wire(t)
			go func() {
				if mux, err := newGreeted(port); err == nil {
					tt.guest(mux)
				}
			}()
			s, err := Connect(t.Context(), host)
			if err != nil {
				t.Fatal(err)
			}
			if s.Err() != nil {
				t.Log("ended already") // allowed: the guest is quick
			}
			_, _ = s.mux.OpenStream() // lets the guest begin
			select {
			case <-s.Done():
			case <-time.After(20 * time.Second):
				t.Fatal("the session goes on")
			}
			if err := s.Err(); !errors.Is(err, ErrLost) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one that says %q", err, tt.want)
			}
		})
	}
}

// A guest that answers a program's request with nonsense ends that program
// only.
func TestGuestThatTalksNonsense(t *testing.T) {
	tests := map[string]struct{ first, second, want string }{
		"no JSON":          {"hello\n", "", "invalid character"},
		"an endless line":  {strings.Repeat("x", maxAnswer+1), "", "a line of more than"},
		"nothing":          {"", "", "gave no answer"},
		"an error":         {`{"error":"no\u0007"}` + "\n", "", "no "},
		"no start":         {`{"program":"1"}` + "\n", `{"gone":true}` + "\n", "does not say that it runs"},
		"half a line":      {`{"program"`, "", "unexpected EOF"},
		"a start, no exit": {`{"program":"1"}` + "\n", `{"started":true}` + "\n", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			host, port := wire(t)
			go func() {
				mux, err := newGreeted(port)
				if err != nil {
					return
				}
				for i := 0; ; i++ {
					raw, err := mux.AcceptStream()
					if err != nil {
						return
					}
					if i == 0 {
						_, _ = io.WriteString(raw, tt.first+tt.second)
					}
					_ = raw.Close()
					go func() { _, _ = io.Copy(io.Discard, raw) }()
				}
			}()
			s, err := Connect(t.Context(), host)
			if err != nil {
				t.Fatal(err)
			}
			p, err := s.Start(t.Context(), shell("true"))
			if tt.want == "" && err == nil {
				if _, err := p.Wait(); !errors.Is(err, ErrLost) {
					t.Errorf("an end without an exit: %v", err)
				}
				if err := p.Close(); !errors.Is(err, ErrLost) {
					t.Errorf("an end that nobody confirms: %v", err)
				}
			} else if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one that says %q", err, tt.want)
			}
			_ = s.Close()
		})
	}
}
