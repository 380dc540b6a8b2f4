package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/ledger"
)

const (
	// managerWait bounds how long a subnet manager may take to confirm a change, and portWait
	// how much longer for each port: OpenSM's host asks each one, in two programs.
	managerWait = 30 * time.Second
	portWait    = 50 * time.Millisecond

	// portsAtOnce is for how many ports the subnet manager is asked at once. How far it has
	// come is recorded, so that a job with more ports ends in several sweeps.
	portsAtOnce = 512

	// managersTurn bounds what a sweep waits for one manager. It is longer than portsAtOnce
	// may take, and so each turn gets further.
	managersTurn = time.Minute
)

func managerTime(ports int) time.Duration {
	return managerWait + time.Duration(ports)*portWait
}

// sweepManagers lets the managers forget ended jobs. Of several processes one does so at a
// time: a P_Key may have got new members since an older look. It does not keep the others
// from hearing nodes.
func (c *Controller) sweepManagers(ctx context.Context) (news int, err error) {
	return c.alone(ctx, managersLock, func(entries []ledger.Entry) (int, error) {
		s := sweep{c}
		leave := func(ctx context.Context, e ledger.Entry) error { return s.leave(ctx, e, entries) }
		left, subnetErr := untilSilent(ctx, waitForSubnet(entries), leave)
		released, fabricErr := untilSilent(ctx, haveSessions(entries), s.releaseCollectives)
		if !isSilence(fabricErr) {
			fabricErr = errors.Join(fabricErr, s.compareSessions(ctx, entries))
		}
		if !isSilence(fabricErr) {
			fabricErr = errors.Join(fabricErr, s.releaseSteps(ctx, entries))
		}
		return left + released, errors.Join(subnetErr, fabricErr)
	})
}

// untilSilent asks a manager about one job after the other, and counts the answers. It stops
// when the manager does not answer in time: with the other jobs, it would only wait longer.
func untilSilent(ctx context.Context, entries []ledger.Entry, ask func(context.Context, ledger.Entry) error) (answers int, err error) {
	ctx, cancel := context.WithTimeout(ctx, managersTurn)
	defer cancel()
	for _, e := range entries {
		one := ask(ctx, e)
		err = errors.Join(err, one)
		if isSilence(one) {
			break
		}
		if one == nil {
			answers++
		}
	}
	return answers, err
}

func isSilence(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// leave removes the members of a job's P_Keys, and records that the subnet manager has
// confirmed it.
func (s sweep) leave(ctx context.Context, e ledger.Entry, entries []ledger.Entry) error {
	if err := s.leaveAll(ctx, e, abandoned(e, entries)); err != nil {
		return fmt.Errorf("job %s: %w", e.Reservation.Job, err)
	}
	return s.with(context.WithoutCancel(ctx), func(l *ledger.Ledger) error { return l.ConfirmManager(e.Reservation.Job, s.Now()) })
}

// leaveAll goes on where the last sweep has stopped, and records how far it comes.
func (s sweep) leaveAll(ctx context.Context, e ledger.Entry, pkeys []fabric.Tag) error {
	ports := e.Reservation.Ports()
	if s.Subnet == nil || len(pkeys) == 0 {
		return nil
	}
	gone := min(e.Gone, len(ports))
	for some := range slices.Chunk(ports[gone:], portsAtOnce) {
		err := s.leaveSome(ctx, some, pkeys)
		if err == nil {
			gone += len(some)
		}
		if err = errors.Join(err, s.asked(ctx, e, gone)); err != nil {
			return err
		}
	}
	return nil
}

func (s sweep) leaveSome(ctx context.Context, ports []fabric.GUID, pkeys []fabric.Tag) error {
	ctx, cancel := context.WithTimeout(ctx, managerTime(len(ports)))
	defer cancel()
	for _, pkey := range pkeys {
		if err := s.Subnet.Leave(ctx, pkey, ports); err != nil {
			return fmt.Errorf("remove the members of P_Key %s: %w", pkey.Text(fabric.PKey), err)
		}
	}
	return nil
}

func (s sweep) asked(ctx context.Context, e ledger.Entry, gone int) error {
	return s.with(context.WithoutCancel(ctx), func(l *ledger.Ledger) error {
		return l.AskedManager(e.Reservation.Job, gone, s.Now())
	})
}

// releaseCollectives ends a job's session at the fabric manager. If an administrator has taken
// that out of the configuration, the job gives up its session: it counts as stale, and is
// released, as soon as the fabric manager is back.
func (s sweep) releaseCollectives(ctx context.Context, e ledger.Entry) error {
	session := e.Reservation.Collectives.Session
	if s.Fabric == nil {
		s.warn("job %s: its session %s stays at the fabric manager, which is no longer in [fabric.collectives] of slurmv.toml", e.Reservation.Job, session)
	} else if err := s.Fabric.Release(ctx, session); err != nil {
		return fmt.Errorf("job %s: release its multicast addresses: %w", e.Reservation.Job, err)
	}
	return s.record(context.WithoutCancel(ctx), e.Reservation.Job, nil)
}

// compareSessions releases the sessions of jobs that the ledger does not have any more, after
// it was an old copy, and reports those of running jobs that have vanished. before are the
// jobs from before the list; those from after it say what is stale.
func (s sweep) compareSessions(ctx context.Context, before []ledger.Entry) error {
	if s.Fabric == nil {
		return nil
	}
	listed, err := s.Fabric.List(ctx)
	if err != nil {
		return err
	}
	after, err := s.look(ctx)
	if err != nil {
		return err
	}
	for _, job := range s.Fabric.Missing(listed, goingOn(before, after)) {
		s.warn("the fabric manager has lost the multicast addresses of job %s, which goes on without hardware collectives", job)
	}
	return s.releaseStale(ctx, s.Fabric.Stale(s.Cluster, listed, jobsOf(after)))
}

// releaseStale releases sessions until the fabric manager does not answer in time.
func (s sweep) releaseStale(ctx context.Context, sessions []string) (err error) {
	for _, session := range sessions {
		one := s.Fabric.Release(ctx, session)
		if err = errors.Join(err, one); isSilence(one) {
			break
		}
	}
	return err
}
