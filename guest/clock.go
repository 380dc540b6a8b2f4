package guest

import (
	"context"
	"fmt"
	"time"
)

const (
	// goodTrip is how long a question and its answer may take for the guest's clock to
	// be known well enough: the error is half of it.
	goodTrip = 50 * time.Millisecond

	// maxTrips bounds how often it is asked, where all are busy.
	maxTrips = 10
)

// SetClock sets the VM's clock to this host's. The error that remains is less than half
// of the time that the quickest of some questions took, which it returns.
func (s *Session) SetClock(ctx context.Context) (trip time.Duration, err error) {
	var step time.Duration
	for i := range maxTrips {
		took, ahead, err := s.readClock(ctx)
		if err != nil {
			return 0, fmt.Errorf("read the VM's clock: %w", err)
		}
		if i == 0 || took < trip {
			trip, step = took, ahead
		}
		if trip < goodTrip {
			break
		}
	}
	// However long this takes to arrive, it sets the clock by the same.
	if _, err := s.ask(ctx, Header{Kind: kindClock, Step: int64(step)}); err != nil {
		return 0, fmt.Errorf("set the VM's clock: %w", err)
	}
	return trip, nil
}

// readClock asks for the VM's time, and returns how long that took and how far this
// host's clock is ahead, if the answer was given halfway.
func (s *Session) readClock(ctx context.Context) (took, ahead time.Duration, err error) {
	asked := time.Now()
	a, err := s.ask(ctx, Header{Kind: kindClock})
	took = time.Since(asked)
	return took, asked.Add(took / 2).Sub(time.Unix(0, a.Time)), err
}

// Template makes the VM ready to be saved as a template. Nothing of a job may have come
// into it before.
func (s *Session) Template(ctx context.Context) error {
	if _, err := s.ask(ctx, example()); err != nil {
		return fmt.Errorf("make the VM ready to be saved: %w", err)
	}
	return nil
}

// example is a request that has all that later ones may have. The agent learns the types by
// reading it, which would else take each VM from the template some milliseconds.
func example() Header {
	return Header{
		Kind: kindTemplate,
		Setup: &Setup{
			User: User{Groups: []Group{{}}}, Mounts: []Mount{{}}, NICs: []NIC{{}},
			IVShmem: IVShmem{Devices: 1}, Fresh: &Identity{},
		},
		Hosts:   []Host{{}},
		Command: &Command{Limits: []Limit{{}}},
	}
}
