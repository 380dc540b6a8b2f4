package serve

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

// serveClaim gives a device to a run for as long as the connection lives.
func (s *Server) serveClaim(ctx context.Context, conn *nodeagent.Conn, r nodeagent.Request) error {
	if err := s.mayClaim(); err != nil {
		return err
	}
	if err := conn.WriteJSON(nodeagent.Reply{}); err != nil {
		return nil
	}
	ctx, gone := context.WithCancel(ctx)
	go func() {
		defer gone()
		_, _ = io.Copy(io.Discard, conn)
	}()
	claim, err := s.awaitClaim(ctx, conn, r.NoWait)
	switch {
	case errors.Is(err, errAllClaimed):
		_ = conn.WriteJSON(nodeagent.ClaimMessage{Busy: true})
	case err != nil:
		_ = conn.WriteJSON(nodeagent.ClaimMessage{Error: err.Error()})
	default:
		s.holdClaim(ctx, conn, claim)
	}
	return nil
}

// holdClaim returns when the run is over and its device is free.
func (s *Server) holdClaim(ctx context.Context, conn *nodeagent.Conn, claim nodeagent.Claim) {
	s.set.Log.Info("IVShmem device claimed", "device", claim.Device, "claim", claim)
	_ = conn.WriteJSON(nodeagent.ClaimMessage{Claim: &claim})
	<-ctx.Done()
	s.endClaim(claim)
}

func (s *Server) mayClaim() error {
	switch {
	case s.plan.Job.Spec.IVShmem.Devices == 0:
		return fmt.Errorf("job %d has no IVShmem devices", s.plan.Job.ID.Job)
	case s.plan.Job.Rank != 0:
		return fmt.Errorf("node %s is not the first of job %d, which gives out its IVShmem devices", s.plan.Job.Node, s.plan.Job.ID.Job)
	}
	return nil
}

// awaitClaim waits for a device, but no longer than the VMs live.
func (s *Server) awaitClaim(ctx context.Context, conn *nodeagent.Conn, noWait bool) (nodeagent.Claim, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-s.programs.ending:
			cancel(s.errEnding())
		case <-s.set.Gone():
			cancel(s.set.Failure())
		case <-ctx.Done():
		}
	}()
	return s.claims.acquire(ctx, claimWish{
		noWait:  noWait,
		busy:    s.devices.busy,
		waiting: func() { _ = conn.WriteJSON(nodeagent.ClaimMessage{Waiting: true}) },
	})
}

// endClaim ends the programs of a run that is over and then frees its device. It ends them
// on this node; each other node does so at the next claim on the device. If the job itself
// is ending, endClaim does nothing, so programs keep the time that Slurm gives them.
func (s *Server) endClaim(claim nodeagent.Claim) {
	select {
	case <-s.programs.ending:
		return // nobody will claim the device again
	default:
	}
	s.devices.end(claim)
	s.set.Log.Info("IVShmem device free", "device", claim.Device, "claim", claim)
	s.claims.release(claim)
}

func (s *Server) errEnding() error {
	return fmt.Errorf("the VMs of job %d are ending", s.plan.Job.ID.Job)
}
