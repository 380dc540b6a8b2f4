package guest

import (
	"context"
	"fmt"
	"time"
)

const (
	// goodTrip is the longest round trip after which SetClock asks no more. The error of
	// the guest's clock is at most half of it.
	goodTrip = 50 * time.Millisecond

	// maxTrips bounds how often SetClock asks if every round trip is longer, because the
	// machine is busy.
	maxTrips = 10
)

// SetClock sets the VM's clock to this host's. It asks for the VM's time a few times and
// uses the quickest answer. The remaining error is less than half of trip, the time that
// this answer took.
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
	// The request is a difference, so it does not matter how long it takes to arrive.
	if _, err := s.ask(ctx, Header{Kind: kindClock, Step: int64(step)}); err != nil {
		return 0, fmt.Errorf("set the VM's clock: %w", err)
	}
	return trip, nil
}

// readClock asks for the VM's time. It returns how long the answer took, and by how much
// this host's clock is ahead if the VM read its clock halfway.
func (s *Session) readClock(ctx context.Context) (took, ahead time.Duration, err error) {
	asked := time.Now()
	a, err := s.ask(ctx, Header{Kind: kindClock})
	took = time.Since(asked)
	return took, asked.Add(took / 2).Sub(time.Unix(0, a.Time)), err
}

// Template makes the VM ready to be saved as a template. It must come before anything of a
// job gets into the VM.
func (s *Session) Template(ctx context.Context) error {
	if _, err := s.ask(ctx, example()); err != nil {
		return fmt.Errorf("make the VM ready to be saved: %w", err)
	}
	return nil
}

// ExpectNVDIMMs makes the VM ready for NVDIMMs that are plugged in.
func (s *Session) ExpectNVDIMMs(ctx context.Context) error {
	_, err := s.ask(ctx, Header{Kind: kindNVDIMM})
	return err
}

// example is a request with every type that later requests may have. Decoding it makes the
// agent's JSON decoder learn the types now; otherwise each VM from the template would spend
// some milliseconds on that.
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
