package node

import (
	"context"
	"errors"
	"fmt"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/cxi"
	"github.com/slurm-v/slurm-v/internal/durable"
	"github.com/slurm-v/slurm-v/journal"
)

// Up sets up the job's tags on the node, and writes the variables about them. It may be
// called any number of times, by several processes at once. If the first call fails, it leaves
// nothing behind but the journal, which Down removes.
func (n *Node) Up(ctx context.Context, job Job) (Tags, error) {
	var r fabric.Reservation
	var err error
	if job.ID, r, err = n.reservation(ctx, job); err != nil {
		return Tags{}, err
	}
	return n.up(ctx, job, r)
}

// UpIfReserved is Up for a job that may have no reservation. It then has no tags.
func (n *Node) UpIfReserved(ctx context.Context, job Job) (Tags, error) {
	tags, err := n.Up(ctx, job)
	if errors.Is(err, errNoLetter) {
		return Tags{}, nil
	}
	return tags, err
}

func (n *Node) up(ctx context.Context, job Job, r fabric.Reservation) (Tags, error) {
	j, err := n.records.beginAnew(ctx, job)
	if err != nil {
		return Tags{}, err
	}
	defer j.Close()
	if err := n.mayBegin(ctx, job.ID, r.Job); err != nil {
		return Tags{}, err
	}
	if err := errors.Join(noteReservation(j, r.Job), noteTags(j, r), n.words.retract(ctx, r.Job)); err != nil {
		return Tags{}, err
	}
	unlock, err := n.records.lockShared(ctx, r.Job)
	if err != nil {
		return Tags{}, err
	}
	defer unlock()
	inUse := anyService(j.Held())
	tags, err := n.setUp(j, job, r)
	if err != nil {
		err = fmt.Errorf("set up the tags of job %s: %w", job.ID, err)
		return Tags{}, errors.Join(err, n.giveUp(ctx, j, inUse))
	}
	return tags, nil
}

// mayBegin reads the job's record again if the node has confirmed the run: the run may have ended
// since the record was read, and the controller may have believed the node's word.
func (n *Node) mayBegin(ctx context.Context, id, of journal.ID) error {
	confirmed, err := n.words.confirmed(of)
	if !confirmed {
		return err
	}
	noted, err := n.record(ctx, id)
	if err == nil && noted.Restart != id.Restart {
		err = fmt.Errorf("job %s has been requeued, and gets no tags on the fabric any more", id)
	}
	return err
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

func (n *Node) setUp(j *journal.Journal, job Job, r fabric.Reservation) (Tags, error) {
	tags := Tags{Reservation: r, Warnings: reasons(r)}
	if err := n.makeServices(j, job, &tags); err != nil {
		return Tags{}, err
	}
	boot, err := journal.BootID()
	if err != nil {
		return Tags{}, err
	}
	return tags, durable.WriteFile(n.records.environmentFile(job.ID), []byte(tags.file(boot)))
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
