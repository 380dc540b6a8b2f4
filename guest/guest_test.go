package guest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The programs of these tests are started by way of the test program itself.
func TestMain(m *testing.M) {
	RunProgram()
	os.Exit(m.Run())
}

// wire returns the two ends of a stream connection.
func wire(t *testing.T) (a, b net.Conn) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	var ends [2]net.Conn
	for i, fd := range fds {
		f := os.NewFile(uintptr(fd), "wire")
		if ends[i], err = net.FileConn(f); err != nil {
			t.Fatal(err)
		}
		_ = f.Close()
		t.Cleanup(func() { _ = ends[i].Close() })
	}
	return ends[0], ends[1]
}

// testCgroups is a directory for cgroups of any version, removed at the end,
// which fails if a program's cgroup is left.
func testCgroups(t *testing.T, hierarchies ...string) *Cgroups {
	t.Helper()
	if hierarchies == nil {
		hierarchies = []string{"unified", ".", "pids"}
	}
	for _, h := range hierarchies {
		dir := filepath.Join("/sys/fs/cgroup", h, fmt.Sprintf("slurmv-test-%d-%s", os.Getpid(), filepath.Base(t.Name())))
		c, err := newCgroups(dir)
		if err != nil {
			continue
		}
		t.Cleanup(func() {
			if err := os.Remove(dir); err != nil {
				t.Errorf("a program left its cgroup: %v", err)
			}
		})
		return c
	}
	t.Skip("no cgroup hierarchy to write to: run as root on a machine with cgroups mounted below /sys/fs/cgroup")
	return nil
}

// A fakeMachine records what it is asked for.
type fakeMachine struct {
	mu    sync.Mutex
	setup Setup
	hosts []Host
	ssh   SSH
	ahead time.Duration // by which the clock was set
	err   error

	began   time.Time          // zero of the monotonic clock
	rates   map[string]float64 // of that clock, by clock sources; empty is 1
	source  string             // the present one
	refused string             // the one that the kernel does not take
	late    func()             // waits before and after the clock is read
	setting chan struct{}      // tells that Setup has begun, and lets it go on
}

func (f *fakeMachine) Setup(_ context.Context, s Setup) (Report, error) {
	if f.setting != nil {
		f.setting <- struct{}{}
		<-f.setting
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.setup = s
	return Report{OS: "Test OS\x1b[2J", Kernel: "6.1", BootSeconds: 1.5}, f.err
}

// Mount needs a real machine: see package hostdir.
func (f *fakeMachine) Egress(context.Context) (io.ReadWriteCloser, error) {
	return nil, errors.New("the image's kernel has no TUN")
}

func (f *fakeMachine) Mount(context.Context, Mount) (io.ReadWriteCloser, error) {
	return nil, ErrNoFUSE
}

func (f *fakeMachine) SetHosts(_ context.Context, h []Host) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.hosts = h
	return f.err
}

func (f *fakeMachine) StartSSH(_ context.Context, s SSH) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ssh = s
	return f.err
}

func (f *fakeMachine) Template(context.Context) error { return f.err }

func (f *fakeMachine) ExpectNVDIMMs(context.Context) error { return f.err }

// Clock is the clock of a machine that has stood still for an hour.
func (f *fakeMachine) Clock(step time.Duration) (time.Time, time.Duration, error) {
	if f.late != nil {
		f.late()
		defer f.late()
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ahead += step
	return time.Now().Add(f.ahead - time.Hour), f.uptime(), f.err
}

func (f *fakeMachine) uptime() time.Duration {
	if f.began.IsZero() {
		f.began = time.Now().Add(-time.Second)
	}
	rate, known := f.rates[f.source]
	if !known {
		rate = 1
	}
	return time.Duration(float64(time.Since(f.began)) * rate)
}

func (f *fakeMachine) ClockSource(name string) (ClockSource, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if name == f.refused && name != "" {
		return ClockSource{}, errors.New("the kernel keeps its clock source")
	}
	if name != "" {
		f.source = name
	}
	return ClockSource{Current: f.source, Available: slices.Sorted(maps.Keys(f.rates))}, f.err
}

// A vm is a guest at the other end of a session.
type vm struct {
	*Session
	machine *fakeMachine
	dir     string // of the programs' cgroups
	served  chan error
}

// startVM serves in the background what the session asks for.
func startVM(t *testing.T) *vm {
	t.Helper()
	return startServer(t, &Server{Cgroups: testCgroups(t)})
}

func startServer(t *testing.T, server *Server) *vm {
	t.Helper()
	host, port := wire(t)
	v := &vm{machine: &fakeMachine{}, served: make(chan error, 1)}
	server.Machine = v.machine
	if server.Cgroups != nil {
		v.dir = server.Cgroups.dir
	}
	go func() { v.served <- server.Serve(t.Context(), port) }()
	s, err := Connect(t.Context(), host)
	if err != nil {
		t.Fatal(err)
	}
	v.Session = s
	t.Cleanup(func() {
		_ = s.Close()
		<-v.served
	})
	return v
}

// shell is a command for sh with an ordinary environment.
func shell(script string, args ...string) Command {
	return Command{
		Args:  append([]string{"sh", "-c", script, "sh"}, args...),
		Env:   []string{"PATH=/usr/bin:/bin", "LC_ALL=C"},
		Dir:   "/",
		UID:   uint32(os.Getuid()),
		GID:   uint32(os.Getgid()),
		Umask: 0o22,
	}
}

// A result is all there is to see of a program.
type result struct {
	stdout, stderr string
	exit           Exit
}

// finish gives p its input, collects its output and ends it.
func finish(t *testing.T, p *Process, stdin string) result {
	t.Helper()
	var out, errs bytes.Buffer
	var copies sync.WaitGroup
	copies.Go(func() { _, _ = io.Copy(&out, p.Stdout) })
	copies.Go(func() { _, _ = io.Copy(&errs, p.Stderr) })
	copies.Go(func() {
		_, _ = io.Copy(p.Stdin, strings.NewReader(stdin))
		_ = p.Stdin.Close()
	})
	exit, err := p.Wait()
	if err != nil {
		t.Fatal(err)
	}
	copies.Wait()
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
	return result{out.String(), errs.String(), exit}
}

func start(t *testing.T, s *Session, cmd Command) *Process {
	t.Helper()
	p, err := s.Start(t.Context(), cmd)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// expectLine reads the next line of r.
func expectLine(t *testing.T, r io.Reader, want string) {
	t.Helper()
	var line []byte
	for b := make([]byte, 1); ; {
		if _, err := io.ReadFull(r, b); err != nil {
			t.Fatalf("wait for %q after %q: %v", want, line, err)
		}
		if b[0] == '\n' {
			break
		}
		line = append(line, b[0])
	}
	if got := strings.TrimSuffix(string(line), "\r"); got != want {
		t.Fatalf("line = %q, want %q", got, want)
	}
}

// tappedConn is a connection whose reading can be stopped.
type tappedConn struct {
	net.Conn
	mu   sync.Mutex
	open chan struct{} // closed while reading goes on
}

func (c *tappedConn) stop() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open = make(chan struct{})
}

func (c *tappedConn) Read(p []byte) (int, error) {
	c.mu.Lock()
	open := c.open
	c.mu.Unlock()
	<-open
	return c.Conn.Read(p)
}
