package vmstep

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

// A Keeper owns the VM step of one job and tells any number of clients about it. It
// outlives its clients and ends with the job.
type Keeper struct {
	Nodes   int      // of the job
	VMs     int      // of the job, if known
	Command []string // the VM step's srun
	Env     []string // its environment

	// JobGone reports whether the job has ended. The keeper calls it from time to time once
	// the VMs are gone. While they live it need not: srun itself ends with the job.
	JobGone func(context.Context) bool

	// Linger is how long a keeper stays if the VMs turn out to be on another host. It is
	// long enough to tell the clients that wait for it, and short enough that a later
	// client starts a new keeper, which looks again.
	Linger time.Duration

	mu      sync.Mutex
	rec     *history
	stepped chan struct{} // closed when the current step has ended
}

// helloTimeout bounds how long a client may take for its first line, on a busy node too.
const helloTimeout = time.Minute

// Serve starts the VM step, answers clients and returns when the keeper is no longer
// needed. It closes the listener.
func (k *Keeper) Serve(ctx context.Context, l net.Listener) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { l.Close() })()
	k.begin()
	go func() {
		defer cancel()
		k.watch(ctx)
	}()
	for {
		conn, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil:
			return fmt.Errorf("wait for clients: %w", err)
		}
		go k.serveClient(ctx, nodeagent.NewConn(conn))
	}
}

// begin runs a VM step.
func (k *Keeper) begin() {
	rec := newHistory(Event{State: StateStarting, VMs: k.VMs})
	stepped := make(chan struct{})
	k.rec, k.stepped = rec, stepped
	go func() {
		defer close(stepped)
		newStep(k.Nodes, rec).run(k.Command, append(slices.Clone(k.Env), requestedAt(time.Now())))
	}()
}

func (k *Keeper) now() (*history, chan struct{}) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.rec, k.stepped
}

// watch returns when the keeper is no longer needed.
func (k *Keeper) watch(ctx context.Context) {
	for {
		rec, stepped := k.now()
		select {
		case <-stepped:
		case <-ctx.Done():
			return
		}
		if rec.current().State == StateElsewhere {
			sleep(ctx, k.Linger)
			return
		}
		if k.untilGone(ctx, rec) {
			return
		}
	}
}

// untilGone asks at growing intervals whether the job has ended. It returns false if the
// VMs were started again meanwhile.
func (k *Keeper) untilGone(ctx context.Context, rec *history) bool {
	for wait := time.Second; ; wait = min(2*wait, 5*time.Minute) {
		if !sleep(ctx, wait) {
			return true
		}
		if now, _ := k.now(); now != rec {
			return false
		}
		if k.JobGone(ctx) {
			return true
		}
	}
}

// sleep returns false if ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// serveClient sends one client all events until either side ends. A client that does not
// read holds up no other client.
func (k *Keeper) serveClient(ctx context.Context, conn *nodeagent.Conn) {
	defer conn.Close()
	if err := samePeer(conn.Conn); err != nil {
		return
	}
	var hello clientHello
	_ = conn.SetReadDeadline(time.Now().Add(helloTimeout))
	if err := conn.ReadJSON(nodeagent.MaxRequest, &hello); err != nil {
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		defer cancel()
		_, _ = conn.Read(make([]byte, 1)) // clients send nothing more, so Read returns when the client ends
	}()
	rec := k.historyFor(hello)
	if err := conn.WriteJSON(rec.current()); err == nil {
		tell(ctx, conn, rec)
	}
}

// historyFor returns the history that the client follows. It first starts the VMs again if
// the client asks for it and they are gone.
func (k *Keeper) historyFor(hello clientHello) *history {
	k.mu.Lock()
	defer k.mu.Unlock()
	if hello.Restart && k.rec.current().Over() {
		k.begin()
	}
	return k.rec
}

func tell(ctx context.Context, conn *nodeagent.Conn, rec *history) {
	for n := 0; ; {
		events, err := rec.from(ctx, n)
		if err != nil {
			return
		}
		for _, e := range events {
			if conn.WriteJSON(e) != nil {
				return
			}
		}
		n += len(events)
	}
}

// terminate asks srun to end its step, as scancel would.
func terminate(p *os.Process) { _ = p.Signal(syscall.SIGTERM) }
