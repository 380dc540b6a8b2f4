package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/cxi"
	"github.com/slurm-v/slurm-v/journal"
)

// busyPatience bounds how long the end of a job waits for services that are in use. A card
// takes a moment to complete what the job's processes had begun.
const busyPatience = 5 * time.Second

// ErrServices matches the error if CXI services of the job are left. All other errors are
// about the confirmation.
var ErrServices = errors.New("CXI services are left")

// A Left says what else of a run of a job is on the node, as an error; nil for nothing.
type Left func(id journal.ID) error

// Down undoes what the job's run holds, reads back that it is gone, and then confirms. It
// may be called any number of times, and for runs that have held nothing. If services are
// in use, it tries again for patience, and the error is a [*cxi.BusyError]. A run of which
// left says that something is left is not confirmed.
func (n *Node) Down(ctx context.Context, id journal.ID, patience time.Duration, left Left) error {
	if err := n.down(ctx, id, patience, left); err != nil {
		return fmt.Errorf("node %s: release the tags of job %s: %w", n.name, id, err)
	}
	return nil
}

func (n *Node) down(ctx context.Context, id journal.ID, patience time.Duration, left Left) error {
	j, err := n.records.begin(ctx, Job{ID: id}) // without a journal one is begun: a confirmation is due
	if err != nil {
		return err
	}
	defer j.Close()
	busy, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	of := reservationOf(j)
	unlock, err := n.records.lockEnd(ctx, of)
	if err != nil {
		return err
	}
	defer unlock()
	if err := n.undo(busy, j, of); err != nil {
		return fmt.Errorf("%w: %w", ErrServices, err)
	}
	if err := left(id); err != nil {
		return fmt.Errorf("not confirmed: %w", err)
	}
	return n.conclude(ctx, j, of)
}

// conclude confirms, and removes the journal. The confirmation is on disk before the journal
// goes: a crash between the two then confirms twice, and not never. The last component of a
// heterogeneous job confirms for all.
func (n *Node) conclude(ctx context.Context, j *journal.Journal, of journal.ID) error {
	shared, err := n.records.shared(j.ID(), of)
	if err == nil && !shared {
		err = errors.Join(n.words.note(ctx, of), removeIfThere(n.records.endFile(of)))
	}
	if err != nil {
		return err
	}
	if err := errors.Join(undone(j), j.Remove()); err != nil {
		return err
	}
	return n.words.tellIfNew(ctx)
}

// undo removes the file of variables and the services that the journal names, as long as
// ctx lasts. of is the run that has the reservation.
func (n *Node) undo(ctx context.Context, j *journal.Journal, of journal.ID) error {
	if err := errors.Join(removeIfThere(n.records.environmentFile(j.ID())), n.records.removeLock(j.ID())); err != nil {
		return err
	}
	shared, err := n.records.shared(j.ID(), of)
	if err != nil || shared {
		return err
	}
	job, cards, err := services(of, j.Held())
	if err != nil || len(cards) == 0 {
		return err
	}
	lib, err := cxi.Open(n.cfg.VNI.LibCXI)
	if err != nil {
		return err
	}
	defer lib.Close()
	if err := lib.Remove(ctx, job, cards); err != nil {
		return err
	}
	return undone(j, recordService)
}

// End is the end of a job on the node: Down for each of its runs. With reserved, the job
// has a reservation, so that the controller waits for this node's word even if no task of
// the job has run here.
func (n *Node) End(ctx context.Context, job uint32, reserved bool, left Left) error {
	ids, err := n.runs(ctx, job, reserved)
	for _, id := range ids {
		err = errors.Join(err, n.Down(ctx, id, busyPatience, left))
	}
	return err
}

// runs returns the runs of the job that are to be confirmed.
func (n *Node) runs(ctx context.Context, job uint32, reserved bool) (runs []journal.ID, err error) {
	ids, err := journal.List(n.records.dir)
	for _, id := range ids {
		if id.Job == job {
			runs = append(runs, id)
		}
	}
	if err != nil || len(runs) > 0 || !reserved {
		return runs, err
	}
	return n.findRun(ctx, job)
}

// findRun finds out which run of a job has ended that has held nothing. Until it is known,
// a file says that this is to be done.
func (n *Node) findRun(ctx context.Context, job uint32) ([]journal.ID, error) {
	if len(n.cfg.Pools()) == 0 {
		return nil, nil
	}
	if err := n.pending.set(job); err != nil {
		return nil, err
	}
	id, of, err := n.reservedRun(ctx, job)
	if err != nil && !errors.Is(err, ErrNoLetter) {
		return nil, fmt.Errorf("node %s: find the run of job %d that has ended: %w", n.name, job, err)
	}
	if errors.Is(err, ErrNoLetter) {
		return nil, n.pending.clear(job)
	}
	j, err := n.records.begin(ctx, Job{ID: id})
	if err != nil {
		return nil, err
	}
	return []journal.ID{id}, errors.Join(noteReservation(j, of), j.Close(), n.pending.clear(job))
}

// reservedRun returns the run whose reservation is in the job's record, and the run by which
// the controller knows that. Slurm counts a restart when the job is requeued, which is
// before the epilog of the run before.
func (n *Node) reservedRun(ctx context.Context, job uint32) (id, of journal.ID, err error) {
	s, err := n.words.seal(ctx)
	if err != nil {
		return id, of, err
	}
	noted, err := n.slurm.AdminComment(ctx, job)
	if err != nil {
		return id, of, err
	}
	var r fabric.Reservation
	for _, restart := range []uint32{noted.Restart, max(noted.Restart, 1) - 1} {
		id = journal.ID{Job: job, Restart: restart}
		r, err = s.open(id, noted.AdminComment)
		if !errors.Is(err, ErrNoLetter) {
			break
		}
	}
	return id, r.Job, err
}

// Linger tries again to end the job, with growing pauses, until patience is over.
func (n *Node) Linger(ctx context.Context, job uint32, patience time.Duration, left Left) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
		err := n.End(ctx, job, false, left)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// Holds returns the runs of jobs of which the node still has something, or which it has
// not confirmed.
func (n *Node) Holds() ([]journal.ID, error) { return journal.List(n.records.dir) }
