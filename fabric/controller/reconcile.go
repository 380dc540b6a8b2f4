package controller

import (
	"context"
	"errors"
	"fmt"

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
	if err := c.Reconcile(ctx, l); err != nil {
		return fmt.Errorf("compare the fabric's ledger with the jobs that run: %w", err)
	}
	if c.Instance == "" {
		return nil
	}
	return l.SetInstance(c.Instance)
}

// Reconcile ends the runs that slurmctld does not have, hears their nodes, and then adopts
// the reservations that are in records of running jobs and not in the ledger: the ledger may
// be an old copy. Tags that two jobs have are in quarantine from then on.
func (c *Controller) Reconcile(ctx context.Context, l *ledger.Ledger) error {
	entries, err := l.Entries()
	if err != nil {
		return err
	}
	jobs, err := c.Slurm.AdminComments(ctx)
	if err != nil {
		return err
	}
	for _, job := range stale(entries, runsOf(jobs)) {
		if err := l.End(job, c.Now()); err != nil {
			return err
		}
	}
	unknown := lacking(entries, jobs)
	if len(unknown) == 0 {
		return nil
	}
	if err := (sweep{c}).hear(ctx, l); err != nil {
		return err
	}
	return c.adoptAll(l, unknown)
}

// hear records the confirmations of the jobs that are over, so that the owners of long ago
// are not in the way of those that have their tags now.
func (s sweep) hear(ctx context.Context, l *ledger.Ledger) error {
	entries, err := l.Entries()
	if err != nil {
		return err
	}
	w, err := s.ask(ctx, entries)
	if err != nil {
		return err
	}
	return s.believe(l, w)
}

func (c *Controller) adoptAll(l *ledger.Ledger, jobs []slurm.NotedJob) error {
	key, err := c.key()
	if err != nil {
		return err
	}
	for _, job := range jobs {
		if err := c.adopt(l, key, job); err != nil {
			return err
		}
	}
	return nil
}

// adopt takes over the reservation in a record, if there is one.
func (c *Controller) adopt(l *ledger.Ledger, key letter.Key, job slurm.NotedJob) error {
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
	err = l.Adopt(r, nodes, job.Start, c.Now())
	var conflict *ledger.ConflictError
	if errors.As(err, &conflict) {
		c.warn("%v", err)
		return nil
	}
	return err
}
