package serve

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/internal/pmi"
	"github.com/slurm-v/slurm-v/internal/sshkey"
	"github.com/slurm-v/slurm-v/vmlaunch/hypervisor"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// helloTimeout bounds how long a connection may take to send its request. A relay that shares a busy CPU with a hundred
// others needs many seconds.
const helloTimeout = time.Minute

// A Server answers on the socket of a job on one node.
type Server struct {
	set      *machine.Set
	plan     plan.Plan
	connect  func(context.Context, []nodeagent.NodeVMs) error
	claims   *claims
	devices  *devices
	programs *programs
	words    words
	environ  func(m *machine.Machine, env []string) []string

	mapOnce sync.Once
	mapped  chan struct{} // closed when every VM knows the others

	sshMu   sync.Mutex
	sshHost sshkey.Pair // host key of the guests' sshds

	proc string // where /proc is mounted; tests set another directory
}

// New returns the server of the running VMs of set. The server calls connect at most once,
// with the map of the job's VMs: connect makes those of set known to the others. wipe
// zeroes the shared memory of the IVShmem device with that number. environ returns the
// environment of a program in a VM, made from what its relay sends.
func New(set *machine.Set, connect func(context.Context, []nodeagent.NodeVMs) error, wipe func(device int) error,
	environ func(m *machine.Machine, env []string) []string) *Server {
	p := set.Plan
	count := p.Job.Spec.IVShmem.Devices
	return &Server{
		set: set, plan: p, connect: connect, environ: environ, programs: newPrograms(p), mapped: make(chan struct{}), proc: "/proc",
		claims: newClaims(count, p.Job.Step), devices: newDevices(count, len(p.VMs), wipe),
	}
}

// Serve answers until the step ends: until a stop request, or until ctx ends. It gives up
// all privileges that serving does not need, and calls ready once callers can connect. It
// leaves the VMs running.
func (s *Server) Serve(ctx context.Context, ready func()) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	d, err := s.openDoor()
	if err != nil {
		return err
	}
	defer d.close()
	if err := s.shed(); err != nil {
		return err
	}
	ready()
	go func() { <-ctx.Done(); d.close() }()
	go hypervisor.BoundLogs(ctx, s.plan.EmulatorLogs(), s.set.Log)
	s.set.WatchClocks(ctx)
	for {
		c, err := d.accept(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		go s.answer(ctx, stop, c)
	}
}

// answer serves one connection.
func (s *Server) answer(ctx context.Context, stop func(), c *caller) {
	defer c.leave()
	defer c.Close()
	conn := nodeagent.NewConn(c.UnixConn)
	_ = c.SetReadDeadline(time.Now().Add(helloTimeout))
	var request nodeagent.Request
	err := conn.ReadJSON(nodeagent.MaxRequest, &request)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("no request came within %v: the node is too busy", helloTimeout)
	}
	if err == nil {
		_ = c.SetReadDeadline(time.Time{})
		err = c.mayAsk(request.Op)
	}
	if err == nil {
		err = s.serve(ctx, stop, conn, request)
	}
	if err != nil {
		s.set.Log.Warn("request refused", "op", request.Op, "error", err)
		_ = conn.WriteJSON(nodeagent.Reply{Error: err.Error()})
	}
}

// mayAsk allows only root to stop the VMs: root then reclaims everything that they hold.
func (c *caller) mayAsk(op string) error {
	if op == nodeagent.OpStop && !c.root {
		return errors.New("only root may stop the VMs of a job this way; use scancel")
	}
	return nil
}

// serve returns an error only while the Reply is still to be sent.
func (s *Server) serve(ctx context.Context, stop func(), conn *nodeagent.Conn, r nodeagent.Request) error {
	switch r.Op {
	case nodeagent.OpHold:
		return s.serveHold(ctx, conn)
	case nodeagent.OpExec:
		return s.serveExec(ctx, conn, r)
	case nodeagent.OpClaim:
		return s.serveClaim(ctx, conn, r)
	case nodeagent.OpPS:
		d := s.describe()
		return conn.WriteJSON(nodeagent.Reply{Node: &d})
	case nodeagent.OpConsole:
		return s.serveConsole(conn, r)
	case nodeagent.OpForward:
		return s.serveForward(ctx, conn, r)
	case nodeagent.OpKey:
		return s.serveKey(ctx, conn, r)
	case nodeagent.OpFirst:
		first, err := s.words.first(r.Word)
		if err != nil {
			return err
		}
		return conn.WriteJSON(nodeagent.Reply{First: first})
	case nodeagent.OpStop:
		err := conn.WriteJSON(nodeagent.Reply{})
		stop()
		return err
	}
	return fmt.Errorf("operation %q is not known", r.Op)
}

// describe returns the VMs of this node, and the claims on their IVShmem devices.
func (s *Server) describe() nodeagent.NodeVMs {
	d := s.set.Describe()
	d.Claims = s.devices.claims()
	return d
}

// serveHold talks with the VM step's task; see [nodeagent.HoldMessage].
func (s *Server) serveHold(ctx context.Context, conn *nodeagent.Conn) error {
	d := s.describe()
	if err := conn.WriteJSON(nodeagent.Reply{Node: &d}); err != nil {
		return nil
	}
	go s.reportFailure(ctx, conn)
	for {
		var m nodeagent.HoldMessage
		if err := conn.ReadJSON(nodeagent.MaxMap, &m); err != nil {
			return nil
		}
		switch {
		case m.Map != nil:
			s.holdMap(ctx, conn, m.Map)
		case m.Ending:
			s.programs.finish(ctx)
			_ = conn.WriteJSON(nodeagent.HoldMessage{Ended: true})
		}
	}
}

// setMap makes the VMs of this node know all VMs of the job. It may be called once.
func (s *Server) setMap(ctx context.Context, all []nodeagent.NodeVMs) error {
	err := errors.New("the job's VMs know each other already")
	s.mapOnce.Do(func() {
		if err = s.connect(ctx, all); err == nil {
			close(s.mapped)
		}
	})
	return err
}

func (s *Server) holdMap(ctx context.Context, conn *nodeagent.Conn, all []nodeagent.NodeVMs) {
	err := s.setMap(ctx, all)
	s.shedForMap()
	if err != nil {
		s.set.Log.Error("map", "error", err)
		_ = conn.WriteJSON(nodeagent.HoldMessage{Error: err.Error()})
		return
	}
	_ = conn.WriteJSON(nodeagent.HoldMessage{Ready: true})
}

// farewell is how long the relays of a VM that has ended may ask for the reason. When the
// step ends, this process ends too and answers nobody.
const farewell = time.Second

// reportFailure ends the step when a VM ends by itself: the job has lost part of
// its cluster.
func (s *Server) reportFailure(ctx context.Context, conn *nodeagent.Conn) {
	select {
	case <-ctx.Done():
	case <-s.set.Gone():
		time.Sleep(farewell)
		_ = conn.WriteJSON(nodeagent.HoldMessage{Error: s.set.Failure().Error()})
	}
}

// serveExec connects a relay with the guest in which its program runs.
func (s *Server) serveExec(ctx context.Context, conn *nodeagent.Conn, r nodeagent.Request) error {
	m, err := s.chooseMachine(r)
	if err != nil {
		return err
	}
	if err := s.awaitMap(ctx); err != nil {
		return err
	}
	if r.Claim != nil {
		return s.serveClaimed(ctx, conn, r)
	}
	_, err = s.runProgram(ctx, conn, m, nodeagent.Reply{})
	return err
}

// serveClaimed is serveExec for a program whose run has claimed an IVShmem device.
func (s *Server) serveClaimed(ctx context.Context, conn *nodeagent.Conn, r nodeagent.Request) error {
	use, err := s.devices.enter(ctx, r)
	if err != nil {
		return err
	}
	var lost error
	defer func() { use.leave(lost) }()
	m, err := s.machineOf(use, r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(use.over, cancel)()
	lost, err = s.runProgram(ctx, conn, m, nodeagent.Reply{IVShmemSize: s.plan.RegionSize()})
	return err
}

// machineOf finds the VM of a program whose run has claimed a device.
func (s *Server) machineOf(use *use, r nodeagent.Request) (*machine.Machine, error) {
	if r.VM != nodeagent.ByDistribution {
		return s.chooseMachine(r)
	}
	index, err := use.vmOf(r)
	if err != nil {
		return nil, err
	}
	return s.set.Machines[index], nil
}

// runProgram runs a relay's program in a VM, to its end. refused is set only if the reply
// has not been sent. lost means that something of the program may still be in the VM.
func (s *Server) runProgram(ctx context.Context, conn *nodeagent.Conn, m *machine.Machine, reply nodeagent.Reply) (lost, refused error) {
	if err := s.programs.begin(m); err != nil {
		return nil, err
	}
	defer s.programs.end(m)
	if err := m.Failure(s.plan.Job.Node); err != nil {
		return nil, err
	}
	d, vm := s.describe(), m.Describe()
	reply.Node, reply.VM = &d, &vm
	if err := conn.WriteJSON(reply); err != nil {
		return nil, nil
	}
	relay, err := guest.NewRelay(conn)
	if err != nil {
		return nil, nil
	}
	if lost = guest.Proxy(ctx, relay, m.Session(), s.inVM(m)); lost != nil {
		s.set.Log.Info("program ended", "vm", m.Plan.Name, "error", lost)
	}
	return lost, nil
}

// chooseMachine finds the VM for a request.
func (s *Server) chooseMachine(r nodeagent.Request) (*machine.Machine, error) {
	if r.VM != nodeagent.ByDistribution {
		for _, m := range s.set.Machines {
			if m.Plan.Number == r.VM {
				return m, nil
			}
		}
		return nil, fmt.Errorf("vm%d is not on node %s, which has %s to %s", r.VM, s.plan.Job.Node,
			s.set.Machines[0].Plan.Name, s.set.Machines[len(s.set.Machines)-1].Plan.Name)
	}
	dist, err := pmi.ParseDistribution(r.Distribution)
	if err != nil {
		return nil, err
	}
	if r.LocalTasks < 1 || r.LocalID < 0 || r.LocalID >= r.LocalTasks {
		return nil, fmt.Errorf("task %d of %d tasks on node %s does not exist", r.LocalID, r.LocalTasks, s.plan.Job.Node)
	}
	return s.set.Machines[pmi.VMOf(r.LocalID, r.LocalTasks, len(s.set.Machines), dist)], nil
}

// awaitMap returns when the VMs know each other. Programs wait for this, because the user
// may start one before the slowest node of the job is ready.
func (s *Server) awaitMap(ctx context.Context) error {
	select {
	case <-s.mapped:
		return nil
	case <-s.programs.ending:
		return s.errEnding()
	case <-s.set.Gone():
		return s.set.Failure()
	case <-ctx.Done():
		return fmt.Errorf("the VMs of job %d have ended", s.plan.Job.ID.Job)
	}
}

func (s *Server) serveConsole(conn *nodeagent.Conn, r nodeagent.Request) error {
	m, err := s.chooseMachine(r)
	if err != nil {
		return err
	}
	if err := conn.WriteJSON(nodeagent.Reply{}); err != nil {
		return nil
	}
	if r.Follow {
		go func() { _ = m.Console.TypeFrom(conn) }()
	}
	_ = m.Console.CopyTo(conn, r.Follow)
	return nil
}

// serveForward connects to a port inside the guest.
func (s *Server) serveForward(ctx context.Context, conn *nodeagent.Conn, r nodeagent.Request) error {
	m, err := s.chooseMachine(r)
	if err != nil {
		return err
	}
	inside, err := m.Session().Dial(ctx, r.Port)
	if err != nil {
		return fmt.Errorf("connect to port %d of %s: %w", r.Port, m.Plan.Name, err)
	}
	defer inside.Close()
	if err := conn.WriteJSON(nodeagent.Reply{}); err != nil {
		return nil
	}
	join(conn, inside.(halfCloser))
	return nil
}

// A halfCloser can end one direction of a connection.
type halfCloser interface {
	io.ReadWriter
	CloseWrite() error
}

// join carries bytes both ways until both directions have ended.
func join(a, b halfCloser) {
	var both sync.WaitGroup
	carry := func(to, from halfCloser) {
		_, _ = io.Copy(to, from)
		_ = to.CloseWrite()
	}
	both.Go(func() { carry(a, b) })
	both.Go(func() { carry(b, a) })
	both.Wait()
}

// serveKey opens every VM of the node, by ssh, to the holder of a key.
func (s *Server) serveKey(ctx context.Context, conn *nodeagent.Conn, r nodeagent.Request) error {
	public, err := sshkey.Public(r.HostKey)
	if err != nil {
		return fmt.Errorf("the host key of the VMs: %w", err)
	}
	host := s.hostKey(sshkey.Pair{Public: public, Private: r.HostKey})
	for _, m := range s.set.Machines {
		ssh := guest.SSH{User: s.plan.Owner.Name, AuthorizedKey: r.AuthorizedKey, HostKey: host.Private, Listen: listenAddresses(m)}
		if err := m.Session().StartSSH(ctx, ssh); err != nil {
			return fmt.Errorf("start sshd in %s: %w", m.Plan.Name, err)
		}
	}
	d := s.describe()
	d.HostKey = host.Public
	return conn.WriteJSON(nodeagent.Reply{Node: &d})
}

// hostKey returns the first host key that was offered. It stays the same as long as the VMs
// live, because users may have written it down.
func (s *Server) hostKey(offered sshkey.Pair) sshkey.Pair {
	s.sshMu.Lock()
	defer s.sshMu.Unlock()
	if s.sshHost.Private == "" {
		s.sshHost = offered
	}
	return s.sshHost
}

// listenAddresses are the addresses of the guest's sshd: one for the other VMs of the job,
// and one for this agent, which forwards connections.
func listenAddresses(m *machine.Machine) []string {
	return []string{m.Describe().Address, "127.0.0.1"}
}
