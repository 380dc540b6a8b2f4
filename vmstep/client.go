package vmstep

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"time"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

// A Client follows the keeper of a job.
type Client struct {
	// Now is the state when the client connected.
	Now Event

	first bool // this client made start run
	conn  *nodeagent.Conn
}

// connectPatience bounds how long a keeper may take to answer.
const connectPatience = 30 * time.Second

// Connect reaches the keeper at one of the addresses, and calls start if there is none. If
// several processes do so at once, one keeper is started and all reach it. With restart,
// VMs that have failed or ended are started again.
func Connect(ctx context.Context, addresses []string, restart bool, start func() error) (*Client, error) {
	ctx, cancel := context.WithTimeout(ctx, connectPatience)
	defer cancel()
	for first := false; ; first = true {
		c, err := dial(ctx, addresses, restart)
		if !noKeeper(err) {
			return c.as(first), err
		}
		if err := start(); err != nil {
			return nil, fmt.Errorf("start the keeper of the VMs: %w", err)
		}
		// A keeper that lost the race for the address is gone again; the one that
		// won it listens a moment later.
		if !sleep(ctx, 20*time.Millisecond) {
			return nil, errors.New("the keeper of the VMs does not answer")
		}
	}
}

func (c *Client) as(first bool) *Client {
	if c != nil {
		c.first = first
	}
	return c
}

// noKeeper reports whether err says that nobody listens, or that the keeper was about to
// end.
func noKeeper(err error) bool {
	return errors.Is(err, syscall.ECONNREFUSED) || errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) ||
		errors.Is(err, syscall.EPIPE)
}

func dial(ctx context.Context, addresses []string, restart bool) (*Client, error) {
	raw, err := reachAny(ctx, addresses)
	if err != nil {
		return nil, err
	}
	defer context.AfterFunc(ctx, func() { raw.Close() })()
	c := &Client{conn: nodeagent.NewConn(raw)}
	err = c.conn.WriteJSON(clientHello{Restart: restart})
	if err == nil {
		c.Now, err = c.Next()
	}
	if err != nil {
		raw.Close()
		return nil, err
	}
	return c, nil
}

// Next returns the next event. io.EOF means that the keeper is gone.
func (c *Client) Next() (Event, error) {
	var e Event
	err := c.conn.ReadJSON(nodeagent.MaxMap, &e)
	return e, err
}

// Close stops following.
func (c *Client) Close() error { return c.conn.Close() }

// Wait shows events until the VMs are ready, or a keeper on another host has them. It
// returns that state, or why the VMs are not ready. If they were ready when the client
// connected, it shows nothing, unless this client had them started.
func (c *Client) Wait(show func(Event)) (Event, error) {
	e := c.Now
	if e.State == StateStarting || c.first {
		var err error
		if e, err = c.follow(show); err != nil {
			return e, err
		}
	}
	switch e.State {
	case StateFailed:
		return e, fmt.Errorf("the VMs could not be started: %s", e.Reason)
	case StateEnded:
		return e, fmt.Errorf("the VMs of this job have ended: %s", e.Reason)
	}
	return e, nil
}

// follow shows events and returns the state that ends the wait.
func (c *Client) follow(show func(Event)) (Event, error) {
	for {
		e, err := c.Next()
		if errors.Is(err, io.EOF) {
			return e, errors.New("the keeper of the VMs is gone; run slurm-v-run again")
		}
		if err != nil {
			return e, fmt.Errorf("follow the start of the VMs: %w", err)
		}
		show(e)
		if e.final() {
			return e, nil
		}
	}
}

// UntilEnd waits until VMs that were ready have ended, and returns the reason; "" if the
// keeper ends first.
func (c *Client) UntilEnd() string {
	for {
		e, err := c.Next()
		if err != nil {
			return ""
		}
		if e.State == StateEnded {
			return e.Reason
		}
	}
}
