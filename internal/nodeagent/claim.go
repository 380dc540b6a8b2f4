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

	// Number identifies a claim within a job; a later claim has a larger number. A claim
	// with a larger number on the same device proves that the earlier ones are over.
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

// A ClaimMessage is one line from the server after op claim. Exactly one field is set:
//
//	Waiting  all devices are claimed; the claim comes when one is free
//	Claim    the claim is the client's until either side closes the connection
//	Busy     all devices are claimed and the client would not wait; the server closes
//	Error    there will be no claim, for this reason (one sentence); the server closes
type ClaimMessage struct {
	Waiting bool   `json:"waiting,omitempty"`
	Claim   *Claim `json:"claim,omitempty"`
	Busy    bool   `json:"busy,omitempty"`
	Error   string `json:"error,omitempty"`
}

// A Claimant is a connection that asks for a claim. The claim ends with the connection.
type Claimant struct{ conn *Conn }

// Claim asks for a device. With noWait it is refused if no device is free.
func (c *Client) Claim(ctx context.Context, noWait bool) (*Claimant, error) {
	if _, err := c.call(ctx, Request{Op: OpClaim, NoWait: noWait}); err != nil {
		return nil, err
	}
	return &Claimant{c.conn}, nil
}

// Next returns the agent's next message. When ctx ends, so does the claim.
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
		return m, &refusedError{Reason: m.Error}
	}
	return m, nil
}

// Close gives the claim back.
func (c *Claimant) Close() error { return c.conn.Close() }
