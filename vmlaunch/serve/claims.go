package serve

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

// claims are the IVShmem devices of a job and the claims on them. Only the job's first node
// gives out claims, and they hold on all nodes.
type claims struct {
	mu      sync.Mutex
	last    uint64 // number of the newest claim
	held    []nodeagent.Claim
	free    []int // the longest free first
	waiting []chan nodeagent.Claim
}

// newClaims starts without any claim. step is the VM step: claim numbers begin with it, so
// they are above those of the job's earlier VM steps.
func newClaims(devices int, step uint32) *claims {
	c := &claims{last: uint64(step) << 32}
	for k := range devices {
		c.free = append(c.free, k)
	}
	return c
}

// errAllClaimed is the error of a claim with noWait while every device is claimed.
var errAllClaimed = errors.New("every IVShmem device of the job is claimed")

// settle is how long a claim waits silently, even with noWait: a script that starts its
// next run may be a moment faster than this process, which has to notice that the run
// before has ended.
const settle = 2 * time.Second

// A claimWish says how a claim waits. busy reports whether the run of another claim
// certainly still goes on; waiting is called once if no device is free after settle.
type claimWish struct {
	noWait  bool
	busy    func(nodeagent.Claim) bool
	waiting func()
}

// acquire returns a claim. First come, first served.
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

// within waits for a claim: at most patience, or for ever if patience is below zero.
func within(ctx context.Context, granted <-chan nodeagent.Claim, patience time.Duration) (nodeagent.Claim, error) {
	var late <-chan time.Time
	if patience >= 0 {
		late = time.After(patience)
	}
	select {
	case claim := <-granted: // even if ctx has ended
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

// queue puts granted at the end of the queue and returns the claims that are held.
func (c *claims) queue(granted chan nodeagent.Claim) []nodeagent.Claim {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.waiting = append(c.waiting, granted)
	c.grant()
	return slices.Clone(c.held)
}

// leave takes granted out of the queue, unless its claim has come meanwhile.
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

// release frees the device of a claim.
func (c *claims) release(claim nodeagent.Claim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = slices.DeleteFunc(c.held, func(h nodeagent.Claim) bool { return h == claim })
	c.free = append(c.free, claim.Device)
	c.grant()
}

// grant serves the queue as long as devices are free.
func (c *claims) grant() {
	for len(c.free) > 0 && len(c.waiting) > 0 {
		c.last++
		claim := nodeagent.Claim{Device: c.free[0], Number: c.last}
		c.held = append(c.held, claim)
		c.waiting[0] <- claim
		c.free, c.waiting = c.free[1:], c.waiting[1:]
	}
}
