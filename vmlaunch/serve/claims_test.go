package serve

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

func always(nodeagent.Claim) bool { return true }
func never(nodeagent.Claim) bool  { return false }

// take makes a claim that has to come at once.
func take(t *testing.T, c *claims) nodeagent.Claim {
	t.Helper()
	claim, err := c.acquire(t.Context(), claimWish{noWait: true, busy: always})
	if err != nil {
		t.Fatal(err)
	}
	return claim
}

func TestClaimsAreNumberedAndDevicesRest(t *testing.T) {
	c := newClaims(2, 3)
	a, b := take(t, c), take(t, c)
	if a != (nodeagent.Claim{Device: 0, Number: 3<<32 + 1}) || b != (nodeagent.Claim{Device: 1, Number: 3<<32 + 2}) {
		t.Errorf("claims are %v and %v", a, b)
	}
	c.release(b)
	c.release(a)
	if d := take(t, c); d != (nodeagent.Claim{Device: 1, Number: 3<<32 + 3}) {
		t.Errorf("the next is %v; device 1 has rested longer", d)
	}
	if later := take(t, newClaims(1, 4)); later.Number <= a.Number+1000 {
		t.Errorf("VMs that were started again begin with %v", later)
	}
}

// How long a claim that cannot be had waits, and what it says.
func TestAcquire(t *testing.T) {
	tests := map[string]struct {
		noWait bool
		busy   func(nodeagent.Claim) bool
		freed  time.Duration // after the start; 0 never
		ended  time.Duration // of the client, after the start; 0 never

		took   time.Duration
		waited bool
		err    error
	}{
		"it waits for a run that runs":                {busy: always, freed: time.Hour, took: time.Hour, waited: true},
		"a run that was just over is waited for":      {busy: never, freed: time.Second, took: time.Second},
		"but not for long without a word":             {busy: never, freed: time.Hour, took: time.Hour, waited: true},
		"no wait: at once":                            {noWait: true, busy: always, freed: time.Hour, err: errAllClaimed},
		"no wait: a run that was just over":           {noWait: true, busy: never, freed: time.Second, took: time.Second},
		"no wait: a run that is over for all we know": {noWait: true, busy: never, freed: time.Hour, took: settle, err: errAllClaimed},
		"the client goes":                             {busy: always, ended: time.Minute, took: time.Minute, waited: true, err: context.Canceled},
		"the client goes at once":                     {busy: never, ended: time.Second, took: time.Second, err: context.Canceled},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newClaims(1, 0)
				first := take(t, c)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if tt.freed > 0 {
					time.AfterFunc(tt.freed, func() { c.release(first) })
				}
				if tt.ended > 0 {
					time.AfterFunc(tt.ended, cancel)
				}
				began, waited := time.Now(), false
				claim, err := c.acquire(ctx, claimWish{noWait: tt.noWait, busy: tt.busy, waiting: func() { waited = true }})
				if !errors.Is(err, tt.err) || err == nil && claim.Number != first.Number+1 {
					t.Errorf("claim %v, error %v, want error %v", claim, err, tt.err)
				}
				if took := time.Since(began); took != tt.took || waited != tt.waited {
					t.Errorf("after %v, waited: %v; want %v, %v", took, waited, tt.took, tt.waited)
				}
				if err != nil {
					time.Sleep(2 * time.Hour)
					synctest.Wait()
					if tt.ended > 0 {
						c.release(first)
					}
					take(t, c) // nobody is left in the line
				}
			})
		})
	}
}

// Whatever comes and goes, a device has one holder, and none is lost.
func TestClaimsInARush(t *testing.T) {
	const devices, runs = 3, 200
	c := newClaims(devices, 0)
	var mu sync.Mutex
	holders := map[int]int{}
	var all sync.WaitGroup
	for i := range runs {
		all.Go(func() {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if i%3 == 0 {
				time.AfterFunc(time.Duration(i)*10*time.Microsecond, cancel)
			}
			claim, err := c.acquire(ctx, claimWish{noWait: i%5 == 1, busy: always, waiting: func() {}})
			if err != nil {
				return
			}
			mu.Lock()
			holders[claim.Device]++
			if holders[claim.Device] > 1 {
				t.Errorf("device %d has %d holders", claim.Device, holders[claim.Device])
			}
			mu.Unlock()
			time.Sleep(50 * time.Microsecond)
			mu.Lock()
			holders[claim.Device]--
			mu.Unlock()
			c.release(claim)
		})
	}
	all.Wait()
	for range devices {
		take(t, c)
	}
	if _, err := c.acquire(t.Context(), claimWish{noWait: true, busy: always}); !errors.Is(err, errAllClaimed) {
		t.Errorf("a claim too many: %v", err)
	}
}

// claimServer is that of a node of a job with devices.
func claimServer(devices, rank int) *Server {
	job := plan.Job{Node: "n1", Rank: rank, Spec: jobspec.Spec{IVShmem: jobspec.IVShmem{Devices: devices, SizeMiB: 1}}}
	job.ID.Job = 7
	return serverOf(plan.Plan{Job: job, VMs: make([]plan.VM, 2)})
}

// serverOf serves VMs of which none runs, and has nothing to wipe.
func serverOf(p plan.Plan) *Server {
	return New(machine.NewSet(p, machine.StartStopwatch(time.Time{}), nil), nil, func(int) error { return nil }, func(_ *machine.Machine, env []string) []string { return env })
}

// claimFrom asks a node for a claim. ended is closed when the node has done with it.
func claimFrom(t *testing.T, s *Server, noWait bool) (client *nodeagent.Conn, ended chan struct{}) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ended = make(chan struct{})
	server := nodeagent.NewConn(connOf(t, fds[0]))
	client = nodeagent.NewConn(connOf(t, fds[1]))
	t.Cleanup(func() { client.Close() })
	go func() {
		defer close(ended)
		defer server.Close()
		if err := s.serveClaim(t.Context(), server, nodeagent.Request{Op: nodeagent.OpClaim, NoWait: noWait}); err != nil {
			server.WriteJSON(nodeagent.Reply{Error: err.Error()})
		}
	}()
	return client, ended
}

func connOf(t *testing.T, fd int) net.Conn {
	t.Helper()
	f := os.NewFile(uintptr(fd), "socket")
	defer f.Close()
	conn, err := net.FileConn(f)
	if err != nil {
		t.Fatal(err)
	}
	return conn
}

// reply reads the first line.
func reply(t *testing.T, c *nodeagent.Conn) nodeagent.Reply {
	t.Helper()
	var r nodeagent.Reply
	if err := c.ReadJSON(nodeagent.MaxReply, &r); err != nil {
		t.Fatal(err)
	}
	return r
}

// next reads a further line.
func next(t *testing.T, c *nodeagent.Conn) nodeagent.ClaimMessage {
	t.Helper()
	var m nodeagent.ClaimMessage
	if err := c.ReadJSON(nodeagent.MaxReply, &m); err != nil {
		t.Fatal(err)
	}
	return m
}

func TestServeClaim(t *testing.T) {
	s := claimServer(1, 0)
	first, firstEnded := claimFrom(t, s, false)
	reply(t, first)
	claim := next(t, first).Claim
	if claim == nil || claim.Device != 0 {
		t.Fatalf("claim = %v", claim)
	}
	use, err := s.devices.enter(t.Context(), request(*claim, 0, 1))
	if err != nil {
		t.Fatal(err)
	}

	impatient, impatientEnded := claimFrom(t, s, true)
	reply(t, impatient)
	if m := next(t, impatient); !m.Busy {
		t.Errorf("without waiting: %+v", m)
	}
	<-impatientEnded

	second, _ := claimFrom(t, s, false)
	reply(t, second)
	if m := next(t, second); !m.Waiting {
		t.Errorf("first word: %+v", m)
	}
	// The first run dies. Its program ends, and only then does the second get on.
	first.Close()
	<-use.over.Done()
	select {
	case <-firstEnded:
		t.Error("the claim ended before its program")
	case <-time.After(10 * time.Millisecond):
	}
	use.leave(nil)
	if m := next(t, second); m.Claim == nil || m.Claim.Device != 0 || m.Claim.Number <= claim.Number {
		t.Errorf("after the first: %+v", m)
	}
	if _, err := s.devices.enter(t.Context(), request(*claim, 0, 1)); err == nil || !strings.Contains(err.Error(), "has ended") {
		t.Errorf("a late program of the first run: %v", err)
	}
}

func TestServeClaimRefuses(t *testing.T) {
	tests := map[string]struct {
		devices, rank int
		want          string
	}{
		"a job without devices": {0, 0, "job 7 has no IVShmem devices"},
		"another than the first": {1, 1,
			"node n1 is not the first of job 7, which gives out its IVShmem devices"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c, _ := claimFrom(t, claimServer(tt.devices, tt.rank), false)
			if r := reply(t, c); r.Error != tt.want {
				t.Errorf("reply = %+v", r)
			}
		})
	}
}

// A claim that waits when the VMs end is told so; one that is held does no harm to
// programs which use the time that the job has left.
func TestClaimsAtTheEndOfTheJob(t *testing.T) {
	s := claimServer(1, 0)
	held, heldEnded := claimFrom(t, s, false)
	reply(t, held)
	claim := next(t, held).Claim
	use, err := s.devices.enter(t.Context(), request(*claim, 0, 1))
	if err != nil {
		t.Fatal(err)
	}
	waits, _ := claimFrom(t, s, false)
	reply(t, waits)
	next(t, waits)
	s.programs.finish(t.Context())
	if m := next(t, waits); m.Error != "the VMs of job 7 are ending" {
		t.Errorf("the one that waits hears %+v", m)
	}
	if _, err := waits.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("and then %v", err)
	}
	held.Close()
	<-heldEnded
	if use.over.Err() != nil {
		t.Error("the program was ended")
	}
	use.leave(nil)
}
