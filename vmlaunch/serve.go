package vmlaunch

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/internal/pmi"
	"github.com/slurm-v/slurm-v/internal/sshkey"
)

// helloTimeout bounds how long a connection may take to say what it wants.
const helloTimeout = 10 * time.Second

// Serve answers on the job's socket until the step ends: a stop request, or ctx. It
// gives up the privileges that this does not take, and calls ready once callers can
// connect. It leaves the VMs running; [Reclaim] ends them.
func (n *Node) Serve(ctx context.Context, ready func()) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	defer n.close()
	d, err := n.openDoor()
	if err != nil {
		return err
	}
	defer d.close()
	if err := n.shed(); err != nil {
		return err
	}
	ready()
	go func() { <-ctx.Done(); d.close() }()
	go n.boundEmulatorLogs(ctx)
	n.watchClocks(ctx)
	for {
		c, err := d.accept(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		go n.answer(ctx, stop, c)
	}
}

// answer serves one connection.
func (n *Node) answer(ctx context.Context, stop func(), c *caller) {
	defer c.leave()
	defer c.Close()
	conn := nodeagent.NewConn(c.UnixConn)
	_ = c.SetReadDeadline(time.Now().Add(helloTimeout))
	var request nodeagent.Request
	err := conn.ReadJSON(nodeagent.MaxRequest, &request)
	if err == nil {
		_ = c.SetReadDeadline(time.Time{})
		err = c.mayAsk(request.Op)
	}
	if err == nil {
		err = n.serve(ctx, stop, conn, request)
	}
	if err != nil {
		n.log.Warn("request refused", "op", request.Op, "error", err)
		_ = conn.WriteJSON(nodeagent.Reply{Error: err.Error()})
	}
}

// mayAsk leaves the end of the VMs to root, who reclaims what they hold.
func (c *caller) mayAsk(op string) error {
	if op == nodeagent.OpStop && !c.root {
		return errors.New("only root may stop the VMs of a job this way; use scancel")
	}
	return nil
}

// serve returns an error only while the Reply is still to be sent.
func (n *Node) serve(ctx context.Context, stop func(), conn *nodeagent.Conn, r nodeagent.Request) error {
	switch r.Op {
	case nodeagent.OpHold:
		return n.serveHold(ctx, conn)
	case nodeagent.OpExec:
		return n.serveExec(ctx, conn, r)
	case nodeagent.OpClaim:
		return n.serveClaim(ctx, conn, r)
	case nodeagent.OpPS:
		d := n.Describe()
		return conn.WriteJSON(nodeagent.Reply{Node: &d})
	case nodeagent.OpConsole:
		return n.serveConsole(conn, r)
	case nodeagent.OpForward:
		return n.serveForward(ctx, conn, r)
	case nodeagent.OpKey:
		return n.serveKey(ctx, conn, r)
	case nodeagent.OpStop:
		err := conn.WriteJSON(nodeagent.Reply{})
		stop()
		return err
	}
	return fmt.Errorf("operation %q is not known", r.Op)
}

// serveHold is the conversation with the VM step's task, see
// [nodeagent.HoldMessage].
func (n *Node) serveHold(ctx context.Context, conn *nodeagent.Conn) error {
	d := n.Describe()
	if err := conn.WriteJSON(nodeagent.Reply{Node: &d}); err != nil {
		return nil
	}
	go n.reportFailure(ctx, conn)
	for {
		var m nodeagent.HoldMessage
		if err := conn.ReadJSON(nodeagent.MaxMap, &m); err != nil {
			return nil
		}
		switch {
		case m.Map != nil:
			n.holdMap(ctx, conn, m.Map)
		case m.Ending:
			n.End(ctx)
			_ = conn.WriteJSON(nodeagent.HoldMessage{Ended: true})
		}
	}
}

func (n *Node) holdMap(ctx context.Context, conn *nodeagent.Conn, all []nodeagent.NodeVMs) {
	err := n.SetMap(ctx, all)
	n.shedForMap()
	if err != nil {
		n.log.Error("map", "error", err)
		_ = conn.WriteJSON(nodeagent.HoldMessage{Error: err.Error()})
		return
	}
	_ = conn.WriteJSON(nodeagent.HoldMessage{Ready: true})
}

// farewell is how long the relays of a VM that has ended have to ask why: when the
// step ends, so does this process.
const farewell = time.Second

// reportFailure ends the step when a VM ends by itself: the job has lost part of
// its cluster.
func (n *Node) reportFailure(ctx context.Context, conn *nodeagent.Conn) {
	select {
	case <-ctx.Done():
	case <-n.gone:
		time.Sleep(farewell)
		_ = conn.WriteJSON(nodeagent.HoldMessage{Error: n.failure().Error()})
	}
}

// serveExec joins a relay and the guest that its program runs in.
func (n *Node) serveExec(ctx context.Context, conn *nodeagent.Conn, r nodeagent.Request) error {
	m, err := n.chooseMachine(r)
	if err != nil {
		return err
	}
	if err := n.awaitMap(ctx); err != nil {
		return err
	}
	if r.Claim != nil {
		return n.serveClaimed(ctx, conn, r)
	}
	_, err = n.runProgram(ctx, conn, m, nodeagent.Reply{})
	return err
}

// serveClaimed is serveExec for a program whose run has claimed an IVShmem device.
func (n *Node) serveClaimed(ctx context.Context, conn *nodeagent.Conn, r nodeagent.Request) error {
	use, err := n.devices.enter(ctx, r)
	if err != nil {
		return err
	}
	var lost error
	defer func() { use.leave(lost) }()
	m, err := n.machineOf(use, r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(use.over, cancel)()
	lost, err = n.runProgram(ctx, conn, m, nodeagent.Reply{IVShmemSize: n.regionSize()})
	return err
}

// machineOf finds the VM of a program whose run has claimed a device.
func (n *Node) machineOf(use *use, r nodeagent.Request) (*machine, error) {
	if r.VM != nodeagent.ByPlacement {
		return n.chooseMachine(r)
	}
	index, err := use.place(r)
	if err != nil {
		return nil, err
	}
	return n.machines[index], nil
}

// runProgram runs what a relay asks for in a VM, to its end. It refuses only before
// the reply; lost means that something of the program may still be in the VM.
func (n *Node) runProgram(ctx context.Context, conn *nodeagent.Conn, m *machine, reply nodeagent.Reply) (lost, refused error) {
	if err := n.beginProgram(m); err != nil {
		return nil, err
	}
	defer n.endProgram(m)
	if why := m.stopReason(); why != "" {
		return nil, fmt.Errorf("%s on node %s %s", m.plan.Name, n.plan.Job.Node, why)
	}
	d, vm := n.Describe(), m.describe()
	reply.Node, reply.VM = &d, &vm
	if err := conn.WriteJSON(reply); err != nil {
		return nil, nil
	}
	relay, err := guest.NewRelay(conn)
	if err != nil {
		return nil, nil
	}
	if lost = guest.Proxy(ctx, relay, m.session, n.asOwner); lost != nil {
		n.log.Info("program ended", "vm", m.plan.Name, "error", lost)
	}
	return lost, nil
}

// chooseMachine finds the VM that a request is about.
func (n *Node) chooseMachine(r nodeagent.Request) (*machine, error) {
	if r.VM != nodeagent.ByPlacement {
		for _, m := range n.machines {
			if m.plan.Number == r.VM {
				return m, nil
			}
		}
		return nil, fmt.Errorf("vm%d is not on node %s, which has %s to %s", r.VM, n.plan.Job.Node,
			n.machines[0].plan.Name, n.machines[len(n.machines)-1].plan.Name)
	}
	dist, err := pmi.ParseDistribution(r.Distribution)
	if err != nil {
		return nil, err
	}
	if r.LocalTasks < 1 || r.LocalID < 0 || r.LocalID >= r.LocalTasks {
		return nil, fmt.Errorf("task %d of %d tasks on node %s does not exist", r.LocalID, r.LocalTasks, n.plan.Job.Node)
	}
	return n.machines[pmi.VMOf(r.LocalID, r.LocalTasks, len(n.machines), dist)], nil
}

// awaitMap returns when the VMs know each other: a program may start before the
// slowest node of the job is ready.
func (n *Node) awaitMap(ctx context.Context) error {
	select {
	case <-n.mapped:
		return nil
	case <-n.ending:
		return n.errEnding()
	case <-n.gone:
		return n.failure()
	case <-ctx.Done():
		return fmt.Errorf("the VMs of job %d have ended", n.plan.Job.ID.Job)
	}
}

// asOwner makes a program the owner's, whatever its relay asked for.
func (n *Node) asOwner(h *guest.Header) error {
	if h.Command != nil {
		h.Command.UID, h.Command.GID, h.Command.Groups = n.plan.Owner.UID, n.plan.Owner.GID, n.plan.Owner.GroupIDs()
	}
	return nil
}

func (n *Node) serveConsole(conn *nodeagent.Conn, r nodeagent.Request) error {
	m, err := n.chooseMachine(r)
	if err != nil {
		return err
	}
	if err := conn.WriteJSON(nodeagent.Reply{}); err != nil {
		return nil
	}
	if r.Follow {
		go func() { _ = m.console.typeFrom(conn) }()
	}
	_ = m.console.copyTo(conn, r.Follow)
	return nil
}

// serveForward connects to a port inside the guest.
func (n *Node) serveForward(ctx context.Context, conn *nodeagent.Conn, r nodeagent.Request) error {
	m, err := n.chooseMachine(r)
	if err != nil {
		return err
	}
	inside, err := m.session.Dial(ctx, r.Port)
	if err != nil {
		return fmt.Errorf("connect to port %d of %s: %w", r.Port, m.plan.Name, err)
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

// serveKey opens every VM of the node to the holder of a key, by ssh.
func (n *Node) serveKey(ctx context.Context, conn *nodeagent.Conn, r nodeagent.Request) error {
	public, err := sshkey.Public(r.HostKey)
	if err != nil {
		return fmt.Errorf("the host key of the VMs: %w", err)
	}
	host := n.hostKey(sshkey.Pair{Public: public, Private: r.HostKey})
	for _, m := range n.machines {
		ssh := guest.SSH{User: n.plan.Owner.Name, AuthorizedKey: r.AuthorizedKey, HostKey: host.Private, Listen: m.listen()}
		if err := m.session.StartSSH(ctx, ssh); err != nil {
			return fmt.Errorf("start sshd in %s: %w", m.plan.Name, err)
		}
	}
	d := n.Describe()
	d.HostKey = host.Public
	return conn.WriteJSON(nodeagent.Reply{Node: &d})
}

// hostKey is the first one that was offered, for as long as the VMs live: others
// may have written it down.
func (n *Node) hostKey(offered sshkey.Pair) sshkey.Pair {
	n.sshMu.Lock()
	defer n.sshMu.Unlock()
	if n.sshHost.Private == "" {
		n.sshHost = offered
	}
	return n.sshHost
}

// listen is where the guest's sshd is reached: by the other VMs of the job, and
// through this agent.
func (m *machine) listen() []string {
	return []string{m.describe().Address, "127.0.0.1"}
}
