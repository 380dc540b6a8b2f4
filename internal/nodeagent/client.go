package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"syscall"
)

// A Client is one connection to an agent, for one operation. Methods that return a
// connection hand it over; the others close it.
type Client struct {
	path string
	conn *Conn
}

// A refusedError is the agent's sentence about why it did not do something.
type refusedError struct{ Reason string }

func (e *refusedError) Error() string { return e.Reason }

// ErrForeign is the error for users other than the job's, whom the kernel does not let
// connect.
var ErrForeign = errors.New("the VMs of this job belong to another user, whose processes in the job alone may use them")

// Dial connects to the agent that listens at path.
func Dial(ctx context.Context, path string) (*Client, error) {
	dialer := net.Dialer{Timeout: dialTimeout}
	conn, err := dialer.DialContext(ctx, "unix", path)
	if errors.Is(err, fs.ErrPermission) {
		return nil, ErrForeign
	}
	if err != nil {
		return nil, fmt.Errorf("connect to the node agent: %w", err)
	}
	return &Client{path: path, conn: NewConn(conn)}, nil
}

// Close gives up a client whose operation was never started.
func (c *Client) Close() error { return c.conn.Close() }

// Hold keeps the node's VMs running on behalf of the VM step.
func (c *Client) Hold(ctx context.Context) (*Hold, error) {
	reply, err := c.call(ctx, Request{Op: OpHold})
	if err != nil {
		return nil, err
	}
	if reply.Node == nil {
		c.Close()
		return nil, errors.New("the node agent named no VMs")
	}
	return &Hold{Node: *reply.Node, conn: c.conn}, nil
}

// Exec waits until the VMs know each other. It returns the client side of a yamux
// session, for a relay to the VM in the Reply.
func (c *Client) Exec(ctx context.Context, r Request) (*Conn, Reply, error) {
	r.Op = OpExec
	reply, err := c.call(ctx, r)
	if err != nil {
		return nil, Reply{}, err
	}
	if reply.VM == nil || reply.Node == nil {
		c.Close()
		return nil, Reply{}, errors.New("the node agent named no VM")
	}
	return c.conn, reply, nil
}

// PS returns the node's VMs with their states.
func (c *Client) PS(ctx context.Context) (NodeVMs, error) {
	defer c.Close()
	return c.describe(ctx, Request{Op: OpPS})
}

// describe makes a request whose answer is the node's VMs.
func (c *Client) describe(ctx context.Context, r Request) (NodeVMs, error) {
	reply, err := c.call(ctx, r)
	if err != nil {
		return NodeVMs{}, err
	}
	if reply.Node == nil {
		return NodeVMs{}, errors.New("the node agent named no VMs")
	}
	return *reply.Node, nil
}

// Console returns the console of a VM, from its first byte.
func (c *Client) Console(ctx context.Context, vm int, follow bool) (*Conn, error) {
	_, err := c.call(ctx, Request{Op: OpConsole, VM: vm, Follow: follow})
	return c.conn, err
}

// Forward connects to a TCP port of a guest's loopback.
func (c *Client) Forward(ctx context.Context, vm int, port uint16) (*Conn, error) {
	_, err := c.call(ctx, Request{Op: OpForward, VM: vm, Port: port})
	return c.conn, err
}

// Key lets the holder of a key log in to every VM of the node as the job's owner. It
// returns the VMs with their host key.
func (c *Client) Key(ctx context.Context, authorized, host string) (NodeVMs, error) {
	defer c.Close()
	return c.describe(ctx, Request{Op: OpKey, AuthorizedKey: authorized, HostKey: host})
}

// First reports whether this is the first task of the job on this node that says the word. The agent remembers the
// last thousand words.
func (c *Client) First(ctx context.Context, word string) (bool, error) {
	defer c.Close()
	reply, err := c.call(ctx, Request{Op: OpFirst, Word: word})
	return reply.First, err
}

// Stop asks the agent to end; only root may ask. It returns when the agent is about to
// exit.
func (c *Client) Stop(ctx context.Context) error {
	defer c.Close()
	if _, err := c.call(ctx, Request{Op: OpStop}); err != nil {
		return err
	}
	return c.untilClosed(ctx)
}

// untilClosed discards what arrives until the agent closes the connection.
func (c *Client) untilClosed(ctx context.Context) error {
	defer closeOnDone(ctx, c.conn)()
	buf := make([]byte, 512)
	for {
		if _, err := c.conn.Read(buf); err != nil {
			return context.Cause(ctx)
		}
	}
}

// call sends the request and reads the reply. It closes the connection if that fails or
// if ctx ends first.
func (c *Client) call(ctx context.Context, r Request) (Reply, error) {
	defer closeOnDone(ctx, c.conn)()
	var reply Reply
	err := c.conn.WriteJSON(r)
	if err == nil || errors.Is(err, syscall.EPIPE) { // EPIPE: an agent that refuses by credentials closes before it reads the request
		err = c.conn.ReadJSON(MaxReply, &reply)
	}
	switch {
	case ctx.Err() != nil:
		err = context.Cause(ctx)
	case err != nil:
		err = fmt.Errorf("ask the node agent at %s: %w", c.path, err)
	case reply.Error != "":
		err = &refusedError{Reason: reply.Error}
	}
	if err != nil {
		c.Close()
	}
	return reply, err
}

// closeOnDone closes conn when ctx ends, until the returned function is called.
func closeOnDone(ctx context.Context, conn net.Conn) (stop func()) {
	cancel := context.AfterFunc(ctx, func() { conn.Close() })
	return func() { cancel() }
}

// A Hold keeps the VMs of a node alive for the length of the VM step.
type Hold struct {
	Node NodeVMs
	conn *Conn
}

// SendMap sends the agent the map of all VMs of the job, and waits until the VMs of this
// node have it.
func (h *Hold) SendMap(ctx context.Context, all []NodeVMs) error {
	defer closeOnDone(ctx, h.conn)()
	err := h.conn.WriteJSON(HoldMessage{Map: all})
	var m HoldMessage
	if err == nil {
		m, err = h.next()
	}
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil:
		return fmt.Errorf("give the map of VMs to the node agent: %w", err)
	case !m.Ready:
		return errors.New("the node agent did not answer the map of VMs")
	}
	return nil
}

// UntilEnded holds the VMs until ctx ends, which is the end of the step. It then tells
// the agent, waits until all programs have ended, and returns nil; a caller that cannot
// wait as long closes the Hold. If the VMs cannot go on, it returns the reason: io.EOF
// if the agent is gone.
func (h *Hold) UntilEnded(ctx context.Context) error {
	defer context.AfterFunc(ctx, func() { _ = h.conn.WriteJSON(HoldMessage{Ending: true}) })()
	for {
		m, err := h.next()
		if err != nil || m.Ended {
			return err
		}
	}
}

// Close closes the connection to the agent.
func (h *Hold) Close() error { return h.conn.Close() }

func (h *Hold) next() (HoldMessage, error) {
	var m HoldMessage
	if err := h.conn.ReadJSON(MaxReply, &m); err != nil {
		return m, err
	}
	if m.Error != "" {
		return m, &refusedError{Reason: m.Error}
	}
	return m, nil
}
