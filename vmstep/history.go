package vmstep

import (
	"context"
	"sync"
)

// maxEvents bounds how many events of one start a keeper remembers. Beyond it the history
// leaves out progress, but never states.
const maxEvents = 1 << 18

// A history has all events since one start of the VMs. Readers follow it from the beginning,
// each at its own pace.
type history struct {
	mu      sync.Mutex
	events  []Event
	state   Event
	changed chan struct{} // closed by the next add
}

func newHistory(first Event) *history {
	return &history{events: []Event{first}, state: first, changed: make(chan struct{})}
}

func (h *history) add(e Event) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if e.State == "" && len(h.events) >= maxEvents {
		return
	}
	if e.State != "" {
		h.state = e
	}
	h.events = append(h.events, e)
	close(h.changed)
	h.changed = make(chan struct{})
}

// current returns the last state.
func (h *history) current() Event {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.state
}

// from returns the events from number n on. It waits until there is one.
func (h *history) from(ctx context.Context, n int) ([]Event, error) {
	for {
		h.mu.Lock()
		events, changed := h.events[n:], h.changed
		h.mu.Unlock()
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
