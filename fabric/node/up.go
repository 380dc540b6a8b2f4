package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"time"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/cxi"
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

// A holding is the data of a record. A service has no other mark than these two.
type holding struct {
	UID  uint32       `json:"uid"`
	VNIs []fabric.Tag `json:"vnis"`
}

// job is the job of the services, as far as it matters for removing them.
func (h holding) job(id journal.ID) cxi.Job { return cxi.Job{ID: id, UID: h.UID, VNIs: h.VNIs} }

// Up sets up the job's tags on the node, and writes the variables about them. It may be
// called any number of times, by several processes at once. If the first call fails, it leaves
// nothing behind but the journal, which Down removes.
func (n *Node) Up(ctx context.Context, job Job) (Tags, error) {
	r, err := n.Reservation(ctx, job)
	if err != nil {
		return Tags{}, err
	}
	return n.up(ctx, job, r)
}

// UpIfReserved is Up for a job that may have no reservation. It then has no tags.
func (n *Node) UpIfReserved(ctx context.Context, job Job) (Tags, error) {
	r, err := n.Reservation(ctx, job)
	if errors.Is(err, ErrNoLetter) || err == nil && r.Job.Job == 0 {
		return Tags{}, nil
	}
	if err != nil {
		return Tags{}, err
	}
	return n.up(ctx, job, r)
}

func (n *Node) up(ctx context.Context, job Job, r fabric.Reservation) (Tags, error) {
	j, err := n.begin(ctx, job)
	if err != nil {
		return Tags{}, err
	}
	defer j.Close()
	if err := errors.Join(noteReservation(j, r.Job), n.retract(ctx, r.Job)); err != nil {
		return Tags{}, err
	}
	inUse := holdsServices(j)
	tags, err := n.setUp(j, job, r)
	if err != nil {
		err = fmt.Errorf("set up the tags of job %s: %w", job.ID, err)
		return Tags{}, errors.Join(err, n.giveUp(ctx, j, inUse))
	}
	return tags, nil
}

func holdsServices(j *journal.Journal) bool {
	return slices.ContainsFunc(j.Held(), func(r journal.Record) bool { return r.Kind == recordService })
}

// giveUp gives back what a failed call has made. The services of an earlier call may be in
// use by the job: these stay until its end.
func (n *Node) giveUp(ctx context.Context, j *journal.Journal, inUse bool) error {
	if inUse {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), busyPatience)
	defer cancel()
	return n.undo(ctx, j, reservationOf(j))
}

// begin opens the job's journal, or begins it. The lock on it keeps other processes from
// the job's tags. What a journal from before the last boot names is gone.
func (n *Node) begin(ctx context.Context, job Job) (*journal.Journal, error) {
	for {
		j, err := n.tryBegin(job)
		if err == nil && ofEarlierBoot(j.Header()) {
			err = errors.Join(n.forget(j), fs.ErrNotExist)
		}
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

func (n *Node) tryBegin(job Job) (*journal.Journal, error) {
	j, err := journal.Create(n.state, job.ID, journal.Header{Step: job.Step, UID: job.UID, GID: job.GID, Node: n.name})
	if errors.Is(err, fs.ErrExist) {
		j, err = journal.Open(n.state, job.ID)
	}
	return j, err
}

func ofEarlierBoot(h journal.Header) bool {
	boot, err := journal.BootID()
	return err == nil && h.Version != 0 && h.BootID != boot
}

// forget removes a journal whose services are gone.
func (n *Node) forget(j *journal.Journal) error {
	if err := errors.Join(undone(j), removeIfThere(n.environmentFile(j.ID())), n.removeLock(j.ID())); err != nil {
		return errors.Join(err, j.Close())
	}
	if err := j.Remove(); err != nil {
		return errors.Join(err, j.Close())
	}
	return nil
}

func (n *Node) environmentFile(id journal.ID) string {
	return filepath.Join(journal.Dir(n.state, id), "environment")
}

func (n *Node) removeLock(id journal.ID) error {
	return removeIfThere(filepath.Join(n.state, "locks", id.String()))
}

func (n *Node) setUp(j *journal.Journal, job Job, r fabric.Reservation) (Tags, error) {
	tags := Tags{Reservation: r, Warnings: reasons(r)}
	if err := n.makeServices(j, job, &tags); err != nil {
		return Tags{}, err
	}
	boot, err := journal.BootID()
	if err != nil {
		return Tags{}, err
	}
	return tags, durable.WriteFile(n.environmentFile(job.ID), []byte(tags.file(boot)))
}

// reasons says of which kinds the job has got no tags though it wanted some.
func reasons(r fabric.Reservation) (texts []string) {
	for _, g := range r.Grants {
		if len(g.Tags) == 0 && g.Why != "" && g.Why != fabric.WhyOff && g.Why != fabric.WhyNone {
			texts = append(texts, fmt.Sprintf("job %d has no %s: %s", r.Job.Job, g.Kind.Word(), g.Why))
		}
	}
	return texts
}

// makeServices makes a service on each Slingshot card of the node.
func (n *Node) makeServices(j *journal.Journal, job Job, tags *Tags) error {
	if len(tags.Reservation.Tags(fabric.VNI)) == 0 {
		return nil
	}
	lib, err := n.library()
	if err != nil || lib == nil {
		return err
	}
	defer lib.Close()
	cards, err := lib.Devices()
	if err != nil {
		return err
	}
	wanted := cxi.JobOf(tags.Reservation, job.Cores)
	for _, card := range cards {
		made, err := makeService(j, lib, card, wanted)
		if err != nil {
			return err
		}
		tags.Services = append(tags.Services, made.Placed)
		tags.warn(made.Warning)
	}
	return tags.warnOfDefault(lib)
}

// makeService makes the service on one card, or finds that it is there.
func makeService(j *journal.Journal, lib *cxi.Library, card cxi.Device, job cxi.Job) (cxi.Made, error) {
	done, found := state(j, recordService, card.Name)
	if !found {
		if err := j.Intend(recordService, card.Name, holding{job.UID, job.VNIs}); err != nil {
			return cxi.Made{}, err
		}
	}
	made, err := lib.Make(card, job)
	if err != nil || done {
		return made, err
	}
	return made, j.Done(recordService, card.Name)
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

func (t *Tags) warn(text string) {
	if text != "" {
		t.Warnings = append(t.Warnings, text)
	}
}

func (t *Tags) warnOfDefault(lib *cxi.Library) error {
	all, err := lib.All()
	t.Warnings = append(t.Warnings, cxi.Warnings(all)...)
	return err
}
