package node

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/cxi"
	"github.com/slurm-v/slurm-v/fabric/letter"
	"github.com/slurm-v/slurm-v/internal/durable"
	"github.com/slurm-v/slurm-v/journal"
)

// recordService is the kind of the journal's records: a CXI service on the card that the
// record is named after.
const recordService = "cxi"

// recordReservation is the kind of the record whose name is the run that the controller
// knows the reservation by: for a component of a heterogeneous job, its leader.
const recordReservation = "reservation"

func noteReservation(j *journal.Journal, of journal.ID) error {
	if _, found := state(j, recordReservation, of.String()); found {
		return nil
	}
	return j.Intend(recordReservation, of.String(), nil)
}

// reservationOf returns the run by which the controller knows the reservation.
func reservationOf(j *journal.Journal) journal.ID { return reservationIn(j.ID(), j.Held()) }

func reservationIn(id journal.ID, held []journal.Record) journal.ID {
	for _, r := range held {
		if of, err := journal.ParseID(r.Name); r.Kind == recordReservation && err == nil {
			return of
		}
	}
	return id
}

// recordTags is the kind of the record with all that the run has of its reservation, for the
// node's word on what it holds. The record is there before any of it is, and until all is gone.
const recordTags = "tags"

func noteTags(j *journal.Journal, r fabric.Reservation) error {
	if _, found := state(j, recordTags, r.Job.String()); found {
		return nil
	}
	return j.Intend(recordTags, r.Job.String(), letter.HoldingOf(r))
}

// held returns what the runs hold. more says that a journal cannot be read whole. What a journal
// from before the last boot names is gone. Components of a job on one node hold the same.
func (r records) held() (all []letter.Holding, more bool) {
	ids, err := journal.List(r.dir)
	more = err != nil
	for _, id := range ids {
		s, err := journal.Read(r.dir, id)
		more = more || err != nil && !gone(err)
		for _, record := range s.Held {
			if record.Kind != recordTags || ofEarlierBoot(s.Header) {
				continue
			}
			h, err := holdingIn(record)
			more = more || err != nil
			if err == nil && !slices.ContainsFunc(all, func(o letter.Holding) bool { return o.Job == h.Job }) {
				all = append(all, h)
			}
		}
	}
	return all, more
}

func holdingIn(r journal.Record) (h letter.Holding, err error) {
	if err = r.Decode(&h); err == nil {
		h.Job, err = journal.ParseID(r.Name)
	}
	return h, err
}

// A holding is the data of a record. A service has no other mark than these two.
type holding struct {
	UID  uint32       `json:"uid"`
	VNIs []fabric.Tag `json:"vnis"`
}

// job is the job of the services, as far as it matters for removing them.
func (h holding) job(id journal.ID) cxi.Job { return cxi.Job{ID: id, UID: h.UID, VNIs: h.VNIs} }

// records are the journals of the runs of jobs, and the files beside them.
type records struct {
	dir  string
	node string // name in Slurm
}

// begin opens the job's journal, or begins it. The lock on it keeps other processes from
// the job's tags.
func (r records) begin(ctx context.Context, job Job) (*journal.Journal, error) {
	for {
		j, err := r.tryBegin(job)
		if !errors.Is(err, journal.ErrLocked) && !errors.Is(err, fs.ErrNotExist) {
			return j, err
		}
		select {
		case <-ctx.Done():
			return nil, errors.Join(err, context.Cause(ctx))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// beginAnew is begin for a job that goes on: a journal from before the last boot is replaced. What
// that one names is gone.
func (r records) beginAnew(ctx context.Context, job Job) (*journal.Journal, error) {
	j, err := r.begin(ctx, job)
	if err != nil || !ofEarlierBoot(j.Header()) {
		return j, err
	}
	if err := r.forget(j); err != nil {
		return nil, err
	}
	return r.begin(ctx, job)
}

// beginFresh begins the journal of a run that has none. If it has one, the error matches
// [fs.ErrExist] or [journal.ErrLocked]: the run holds something, or is about to.
func (r records) beginFresh(id, of journal.ID) (*journal.Journal, error) {
	j, err := journal.Create(r.dir, id, journal.Header{Node: r.node})
	if err != nil {
		return nil, err
	}
	if err := noteReservation(j, of); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

func (r records) tryBegin(job Job) (*journal.Journal, error) {
	j, err := journal.Create(r.dir, job.ID, journal.Header{Step: job.Step, UID: job.UID, GID: job.GID, Node: r.node})
	if errors.Is(err, fs.ErrExist) {
		j, err = journal.Open(r.dir, job.ID)
	}
	return j, err
}

func ofEarlierBoot(h journal.Header) bool {
	boot, err := journal.BootID()
	return err == nil && h.Version != 0 && h.BootID != boot
}

// forget removes a journal whose services are gone.
func (r records) forget(j *journal.Journal) error {
	if err := errors.Join(undone(j), durable.Remove(r.environmentFile(j.ID()))); err != nil {
		return errors.Join(err, j.Close())
	}
	if err := j.Remove(); err != nil {
		return errors.Join(err, j.Close())
	}
	return nil
}

func (r records) environmentFile(id journal.ID) string {
	return filepath.Join(journal.Dir(r.dir, id), "environment")
}

// of returns the runs of a job that hold something, or whose confirmation is due.
func (r records) of(job uint32) (runs []journal.ID, err error) {
	ids, err := journal.List(r.dir)
	for _, id := range ids {
		if id.Job == job {
			runs = append(runs, id)
		}
	}
	return runs, err
}

// holds reports whether the run has a journal.
func (r records) holds(id journal.ID) bool {
	_, err := os.Stat(journal.Dir(r.dir, id))
	return err == nil
}

// locks are the files that the plugin locks while it starts Up. They go when the job has
// ended, and not before: a task that waits for a lock whose file is gone no longer sees that
// the agent has failed.
func (r records) locks() numbered { return numbered(filepath.Join(r.dir, "locks")) }

// lockShared keeps other components of the job from what they share. Two that end at the same time
// would each leave it to the other; one that begins could find services that are just going.
func (r records) lockShared(ctx context.Context, of journal.ID) (unlock func(), err error) {
	if err := durable.MakeDirs(filepath.Dir(r.endFile(of)), 0o711); err != nil {
		return nil, err
	}
	lock, err := durable.Lock(ctx, r.endFile(of), os.O_CREATE)
	if err != nil {
		return nil, err
	}
	return func() { _ = lock.Close() }, nil
}

func (r records) endFile(of journal.ID) string { return filepath.Join(r.dir, "ends", of.String()) }

// shared reports whether another component of the job is on the node whose records count. The
// services belong to the whole job.
func (r records) shared(id, of journal.ID, counts func([]journal.Record) bool) (bool, error) {
	ids, err := journal.List(r.dir)
	for _, other := range ids {
		if other == id {
			continue
		}
		s, err := journal.Read(r.dir, other)
		if err != nil && !gone(err) {
			return false, err
		}
		if reservationIn(other, s.Held) == of && counts(s.Held) {
			return true, nil
		}
	}
	return false, err
}

// undone takes the records of a kind off the journal; without a kind, all.
func undone(j *journal.Journal, kinds ...string) error {
	for _, r := range j.Held() {
		if len(kinds) > 0 && !slices.Contains(kinds, r.Kind) {
			continue
		}
		if err := j.Undone(r.Kind, r.Name); err != nil {
			return err
		}
	}
	return nil
}

// services returns the job of the services that the records name, and their cards.
func services(id journal.ID, held []journal.Record) (job cxi.Job, cards []string, err error) {
	for _, r := range held {
		if r.Kind != recordService {
			continue
		}
		var h holding
		if err := r.Decode(&h); err != nil {
			return job, nil, err
		}
		job, cards = h.job(id), append(cards, r.Name)
	}
	return job, cards, nil
}

// jobs returns the jobs that have services here, by their journals.
func (r records) jobs() (jobs []cxi.Job, err error) {
	ids, err := journal.List(r.dir)
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		s, err := journal.Read(r.dir, id)
		if gone(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		job, cards, err := services(id, s.Held)
		if err != nil {
			return nil, err
		}
		if len(cards) > 0 {
			jobs = append(jobs, job)
		}
	}
	return jobs, nil
}

// anyTags is false of a journal that only says whose confirmation is due.
func anyTags(held []journal.Record) bool {
	return slices.ContainsFunc(held, func(r journal.Record) bool { return r.Kind != recordReservation })
}

func anyService(held []journal.Record) bool {
	return slices.ContainsFunc(held, func(r journal.Record) bool { return r.Kind == recordService })
}

// state reports whether the journal has a record, and whether that is done.
func state(j *journal.Journal, kind, name string) (done, found bool) {
	for _, r := range j.Held() {
		if r.Kind == kind && r.Name == name {
			return r.Done, true
		}
	}
	return false, false
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}

// gone reports whether err says that there is no such file.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) }
