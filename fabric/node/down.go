package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slurm-v/slurm-v/fabric/cxi"
	"github.com/slurm-v/slurm-v/internal/durable"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
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
	if ofEarlierBoot(j.Header()) {
		// The run stays: a component of a heterogeneous job confirms its leader, not itself.
		if err := undone(j, recordService, recordTags); err != nil {
			return errors.Join(err, j.Close())
		}
	}
	return n.end(ctx, j, patience, left)
}

// end undoes what the journal names, confirms, and closes the journal.
func (n *Node) end(ctx context.Context, j *journal.Journal, patience time.Duration, left Left) error {
	defer j.Close()
	busy, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	of := reservationOf(j)
	unlock, err := n.records.lockShared(ctx, of)
	if err != nil {
		return err
	}
	defer unlock()
	if err := n.undo(busy, j, of); err != nil {
		return fmt.Errorf("%w: %w", ErrServices, err)
	}
	if err := left(j.ID()); err != nil {
		return fmt.Errorf("not confirmed: %w", err)
	}
	return n.conclude(ctx, j, of)
}

// conclude confirms, and removes the journal. The confirmation is on disk before the journal
// goes: a crash between the two then confirms twice, and not never. The last component of a
// heterogeneous job that has held something here confirms for all. Until the job has ended, another
// one may still begin here: the journal then stays, with nothing but the run that is to be confirmed.
func (n *Node) conclude(ctx context.Context, j *journal.Journal, of journal.ID) error {
	shared, err := n.records.shared(j.ID(), of, anyTags)
	if err != nil {
		return err
	}
	if !shared {
		if err := leaderOver(ctx, n.slurm, j.ID(), of); err != nil {
			return errors.Join(err, undone(j, recordTags))
		}
		if err := errors.Join(n.words.note(ctx, of), removeIfThere(n.records.endFile(of))); err != nil {
			return err
		}
	}
	if err := errors.Join(undone(j), j.Remove()); err != nil {
		return err
	}
	return n.words.tellIfNew(ctx)
}

// leaderOver returns [ErrUndecided] for a component that has ended alone. With its leader, a
// heterogeneous job ends as a whole.
func leaderOver(ctx context.Context, c slurm.Comments, id, of journal.ID) error {
	if id == of {
		return nil
	}
	leader, err := c.AdminComment(ctx, of.Job)
	switch {
	case errors.Is(err, slurm.ErrUnknownJob):
		return nil
	case err != nil:
		return fmt.Errorf("ask whether job %s has ended, to which it belongs: %w", of, err)
	case leader.Restart == of.Restart && !slurm.Over(leader.State):
		return fmt.Errorf("job %s, to which it belongs, has not ended: %w", of, ErrUndecided)
	}
	return nil
}

// undo removes the file of variables and the services that the journal names, as long as
// ctx lasts. of is the run that has the reservation. It leaves the services to another component
// only if that one's journal names services, too: else nobody would remove them.
func (n *Node) undo(ctx context.Context, j *journal.Journal, of journal.ID) error {
	if err := durable.Remove(n.records.environmentFile(j.ID())); err != nil {
		return err
	}
	shared, err := n.records.shared(j.ID(), of, anyService)
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

// End is the end of a job on the node, from its epilog: Down for each of its runs. With
// reserved, the controller waits for this node's word even if no task of the job has run
// here. The error may be [ErrUndecided].
func (n *Node) End(ctx context.Context, job uint32, reserved bool, left Left) error {
	ids, err := n.records.of(job)
	for _, id := range ids {
		err = errors.Join(err, n.Down(ctx, id, busyPatience, left))
	}
	switch {
	case err == nil && reserved: // a journal may be of an earlier run, or not name the leader yet
		err = n.endWithoutJournal(ctx, job, left)
	case err != nil: // Slurm forgets the job, whose tags stay
		err = errors.Join(err, n.words.tellIfHeld(ctx))
	}
	return errors.Join(err, n.records.locks().clear(job))
}

// Linger goes on where End gave up, with growing pauses, until patience is over. It calls still with the
// error of each try. It ends no run that began after End: the job may be on the node again.
func (n *Node) Linger(ctx context.Context, job uint32, patience time.Duration, left Left, still func(error)) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	ids, err := n.records.of(job)
	if err != nil {
		return err
	}
	for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
		if ids, err = n.endAgain(ctx, ids, job, left); err == nil {
			return nil
		}
		still(err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}

// endAgain ends the runs, and returns those that still hold something. It does the rest of
// what End does, too: the journal is gone before slurmctld is told.
func (n *Node) endAgain(ctx context.Context, ids []journal.ID, job uint32, left Left) (still []journal.ID, err error) {
	for _, id := range ids {
		one := n.Down(ctx, id, busyPatience, left)
		if one != nil && n.records.holds(id) {
			still = append(still, id)
		}
		err = errors.Join(err, one)
	}
	if err == nil && n.pending.has(job) {
		err = n.confirmLate(ctx, job, left)
	}
	if err == nil {
		err = n.words.tellIfNew(ctx)
	}
	return still, err
}
