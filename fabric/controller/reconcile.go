package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/ledger"
	"github.com/slurm-v/slurm-v/fabric/letter"
	"github.com/slurm-v/slurm-v/slurm"
)

// reconcileOnce compares the ledger with slurmctld's records if that has not been done since
// slurmctld started, or since an old copy of the ledger was put back. Nobody else has the
// ledger open meanwhile. A process that slurmctld has not started does not know the instance:
// it compares if it will give tags.
func (c *Controller) reconcileOnce(ctx context.Context, l *ledger.Ledger, gives bool) error {
	last, err := l.Instance()
	known := c.Instance != "" && last == c.Instance
	if err != nil || known || c.Instance == "" && !gives {
		return err
	}
	if err := (comparison{c, l, last == ""}).run(ctx); err != nil {
		return fmt.Errorf("compare the fabric's ledger with the jobs that run: %w", err)
	}
	if c.Instance == "" {
		return nil
	}
	return l.SetInstance(c.Instance)
}

// A comparison is that of a ledger with what slurmctld and the nodes say.
type comparison struct {
	*Controller
	l   *ledger.Ledger
	old bool // it is an old copy, or new
}

// run ends the runs that slurmctld does not have. A current ledger has all others: a job that is not
// in it any more has given back its tags, though it may still be completing.
//
// For an old copy, run then hears the nodes, and adopts the reservations that are in records of
// running jobs and not in the ledger. Tags that two jobs have are in quarantine from then on. An old
// copy also lacks runs that are over for slurmctld and not for their nodes. Tags of which no job's
// record and no node tells are withheld.
func (c comparison) run(ctx context.Context) error {
	jobs, err := c.Slurm.AdminComments(ctx)
	if err != nil {
		return err
	}
	entries, err := c.endOver(jobs)
	if err != nil || !c.old {
		return err
	}
	if err := c.hear(ctx); err != nil {
		return err
	}
	if err := c.adoptAll(lacking(entries, jobs)); err != nil {
		return err
	}
	if err := c.adoptHeld(ctx); err != nil {
		return err
	}
	if _, err = c.endOver(jobs); err != nil {
		return err
	}
	return c.withhold()
}

// withhold keeps what nobody tells from other jobs.
func (c comparison) withhold() error {
	n, err := c.l.Withhold(c.Now())
	if n > 0 {
		c.warn("an old copy of the fabric's ledger was put back: %s", withheldText(n))
	}
	return err
}

// endOver ends the runs in the ledger that are none of slurmctld's jobs. It returns what is in the
// ledger, from before.
func (c comparison) endOver(jobs []slurm.NotedJob) ([]ledger.Entry, error) {
	entries, err := c.l.Entries()
	if err != nil {
		return nil, err
	}
	for _, job := range stale(entries, runsOf(jobs)) {
		if err := c.l.End(job, c.Now()); err != nil {
			return nil, err
		}
	}
	return entries, nil
}

// hear records the confirmations of the jobs that are over, so that the owners of long ago
// are not in the way of those that have their tags now.
func (c comparison) hear(ctx context.Context) error {
	entries, err := c.l.Entries()
	if err != nil {
		return err
	}
	s := sweep{c.Controller}
	w, err := s.ask(ctx, entries)
	if err != nil || w.none() {
		return err
	}
	return s.believe(c.l, w)
}

func (c comparison) adoptAll(jobs []slurm.NotedJob) error {
	key, err := c.key()
	if err != nil {
		return err
	}
	for _, job := range jobs {
		if err := c.adopt(key, job); err != nil {
			return err
		}
	}
	return nil
}

// adopt takes over the reservation in a record, if there is one.
func (c comparison) adopt(key letter.Key, job slurm.NotedJob) error {
	var r fabric.Reservation
	err := letter.Find(key, letter.ReservationSubject(c.Cluster, runOf(job)), job.AdminComment, &r)
	switch {
	case errors.Is(err, letter.ErrNone):
		return nil // a job without tags, or one that is not yet told its own
	case err != nil:
		return err
	}
	nodes, err := slurm.Expand(job.NodeList)
	if err != nil {
		return fmt.Errorf("job %s: %w", job.Name, err)
	}
	return c.take(r, nodes, job.Start)
}

// adoptHeld takes over what nodes say they have of runs that the ledger does not have.
func (c comparison) adoptHeld(ctx context.Context) error {
	key, err := c.key()
	if err != nil {
		return err
	}
	records, err := c.Slurm.AllNodeRecords(ctx)
	if err != nil {
		return fmt.Errorf("ask for the statements of all nodes: %w", err)
	}
	entries, err := c.l.Entries()
	if err != nil {
		return err
	}
	said := (sweep{c.Controller}).statements(key, records)
	for _, left := range leftovers(c.Cluster, said, entries, fabric.Pools(c.Site)) {
		if err := c.take(left.reservation, left.nodes, c.Now()); err != nil {
			return err
		}
	}
	return nil
}

// take adopts a reservation. A conflict is for an administrator, and in nobody's way.
func (c comparison) take(r fabric.Reservation, nodes []string, began time.Time) error {
	err := c.l.Adopt(r, nodes, began, c.Now())
	var conflict *ledger.ConflictError
	if errors.As(err, &conflict) {
		c.warn("%v", err)
		return nil
	}
	return err
}
