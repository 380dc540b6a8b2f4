package nodeagent

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// A Claim is one run's right to an IVShmem device of the job, on every node. It
// travels with the run's tasks.
type Claim struct {
	Device int `json:"device"`

	// Number tells the claims of a job apart; a later one is larger. Who comes
	// with a larger number proves that the earlier claims on its device are over.
	Number uint64 `json:"number"`
}

// String is the claim on a command line, as "1.17179869188".
func (c Claim) String() string { return fmt.Sprintf("%d.%d", c.Device, c.Number) }

// ParseClaim is the inverse of String.
func ParseClaim(text string) (Claim, error) {
	device, number, found := strings.Cut(text, ".")
	d, err := strconv.ParseUint(device, 10, 16)
	n, numberErr := strconv.ParseUint(number, 10, 64)
	if !found || err != nil || numberErr != nil || n == 0 {
		return Claim{}, fmt.Errorf("%q is not a claim of slurm-v-run", text)
	}
	return Claim{Device: int(d), Number: n}, nil
}

// A ClaimMessage is one line from the server after op claim. Exactly one field is
// set:
//
//	Waiting  every device is claimed; the claim will come when one is free
//	Claim    it is the client's until the connection ends, from either side
//	Busy     every device is claimed and the client would not wait; the server closes
//	Error    there will be no claim, in one sentence; the server closes
type ClaimMessage struct {
	Waiting bool   `json:"waiting,omitempty"`
	Claim   *Claim `json:"claim,omitempty"`
	Busy    bool   `json:"busy,omitempty"`
	Error   string `json:"error,omitempty"`
}

// A Claimant is a connection that asks for a claim and then is its life.
type Claimant struct{ conn *Conn }

// Claim asks for a device. With noWait it does not wait for one.
func (c *Client) Claim(ctx context.Context, noWait bool) (*Claimant, error) {
	if _, err := c.call(ctx, Request{Op: OpClaim, NoWait: noWait}); err != nil {
		return nil, err
	}
	return &Claimant{c.conn}, nil
}

// Next returns what the agent says next. When ctx ends, so does the claim.
func (c *Claimant) Next(ctx context.Context) (ClaimMessage, error) {
	defer closeOnDone(ctx, c.conn)()
	var m ClaimMessage
	err := c.conn.ReadJSON(MaxReply, &m)
	switch {
	case ctx.Err() != nil:
		return m, context.Cause(ctx)
	case err != nil:
		return m, errors.New("the node agent is gone, and with it the VMs of this node; slurmv logs may say why")
	case m.Error != "":
		return m, &RefusedError{Reason: m.Error}
	}
	return m, nil
}

// Close gives the claim back.
func (c *Claimant) Close() error { return c.conn.Close() }
