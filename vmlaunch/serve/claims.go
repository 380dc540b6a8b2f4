package serve

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

// claims are the IVShmem devices of a job and who has claimed them. Only those of
// the job's first node count: what it decides holds on all nodes.
type claims struct {
	mu      sync.Mutex
	last    uint64 // number of the newest claim
	held    []nodeagent.Claim
	free    []int // the longest free first
	waiting []chan nodeagent.Claim
}

// newClaims numbers claims above those of earlier VMs of the job: step is that of
// the VMs.
func newClaims(devices int, step uint32) *claims {
	c := &claims{last: uint64(step) << 32}
	for k := range devices {
		c.free = append(c.free, k)
	}
	return c
}

// errAllClaimed ends a claim that would have had to wait.
var errAllClaimed = errors.New("every IVShmem device of the job is claimed")

// settle is how long a claim waits without a word, and also if it is not to wait:
// that an earlier run has ended its script knows a moment before this process.
const settle = 2 * time.Second

// A claimWish says how a claim is to wait. busy reports whether a run that has
// claimed a device is certainly not over; waiting is called once if no device
// became free soon.
type claimWish struct {
	noWait  bool
	busy    func(nodeagent.Claim) bool
	waiting func()
}

// acquire returns a claim, first come first served.
func (c *claims) acquire(ctx context.Context, wish claimWish) (nodeagent.Claim, error) {
	granted := make(chan nodeagent.Claim, 1)
	held := c.queue(granted)
	patience := settle
	if !slices.ContainsFunc(held, func(h nodeagent.Claim) bool { return !wish.busy(h) }) {
		patience = 0
	}
	if claim, err := within(ctx, granted, patience); err == nil {
		return claim, nil
	}
	if !wish.noWait && ctx.Err() == nil {
		wish.waiting()
		if claim, err := within(ctx, granted, -1); err == nil {
			return claim, nil
		}
	}
	return c.leave(ctx, granted)
}

// within waits for a claim for so long, or, below zero, for ever.
func within(ctx context.Context, granted <-chan nodeagent.Claim, patience time.Duration) (nodeagent.Claim, error) {
	var late <-chan time.Time
	if patience >= 0 {
		late = time.After(patience)
	}
	select {
	case claim := <-granted: // above all
		return claim, nil
	default:
	}
	select {
	case claim := <-granted:
		return claim, nil
	case <-late:
		return nodeagent.Claim{}, errAllClaimed
	case <-ctx.Done():
		return nodeagent.Claim{}, context.Cause(ctx)
	}
}

// queue lines up and returns the claims that are held.
func (c *claims) queue(granted chan nodeagent.Claim) []nodeagent.Claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, granted)
	c.grant()
	return slices.Clone(c.held)
}

// leave steps out of the line, unless the claim has come meanwhile.
func (c *claims) leave(ctx context.Context, granted chan nodeagent.Claim) (nodeagent.Claim, error) {
	c.mu.Lock()
	at := slices.Index(c.waiting, granted)
	if at >= 0 {
		c.waiting = slices.Delete(c.waiting, at, at+1)
	}
	c.mu.Unlock()
	switch {
	case at < 0 && ctx.Err() == nil:
		return <-granted, nil
	case at < 0:
		c.release(<-granted)
	}
	if ctx.Err() != nil {
		return nodeagent.Claim{}, context.Cause(ctx)
	}
	return nodeagent.Claim{}, errAllClaimed
}

// release makes the device of a claim free.
func (c *claims) release(claim nodeagent.Claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = slices.DeleteFunc(c.held, func(h nodeagent.Claim) bool { return h == claim })
	c.free = append(c.free, claim.Device)
	c.grant()
}

// grant serves the line as long as there are devices.
func (c *claims) grant() {
	for len(c.free) > 0 && len(c.waiting) > 0 {
		c.last++
		claim := nodeagent.Claim{Device: c.free[0], Number: c.last}
		c.held = append(c.held, claim)
		c.waiting[0] <- claim
		c.free, c.waiting = c.free[1:], c.waiting[1:]
	}
}
