package vmstep

import (
	"context"
	"sync"
)

// maxEvents bounds how many events of one start a keeper remembers. Beyond it the record
// leaves out progress, but never states.
const maxEvents = 1 << 18

// A record has all events since one start of the VMs. Readers follow it from the beginning,
// each at its own pace.
type record struct {
	mu      sync.Mutex
	events  []Event
	state   Event
	changed chan struct{} // closed by the next add
}

func newRecord(first Event) *record {
	return &record{events: []Event{first}, state: first, changed: make(chan struct{})}
}

func (r *record) add(e Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.State == "" && len(r.events) >= maxEvents {
		return
	}
	if e.State != "" {
		r.state = e
	}
	r.events = append(r.events, e)
	close(r.changed)
	r.changed = make(chan struct{})
}

// current returns the last state.
func (r *record) current() Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// from returns the events from number n on. It waits until there is one.
func (r *record) from(ctx context.Context, n int) ([]Event, error) {
	for {
		r.mu.Lock()
		events, changed := r.events[n:], r.changed
		r.mu.Unlock()
		if len(events) > 0 {
			return events, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
