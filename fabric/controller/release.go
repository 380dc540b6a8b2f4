package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/slurm-v/slurm-v/fabric/ledger"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
)

// Release says in the ledger that a job has ended. Its nodes and the managers confirm later,
// to [Controller.Sweep]. It may be repeated.
//
// A component of a heterogeneous job that is not its leader ends nothing: the others may go
// on, and no node confirms before its own part is undone.
func (c *Controller) Release(ctx context.Context, h slurm.Hook) error {
	if !h.Leads() {
		return nil
	}
	if err := c.release(ctx, h); err != nil {
		return fmt.Errorf("release the tags of job %s: %w", h.Name, err)
	}
	return nil
}

func (c *Controller) release(ctx context.Context, h slurm.Hook) error {
	entries, err := c.Entries(ctx, h.Job.Job)
	if err != nil {
		return err
	}
	ended := endedBy(entries, idOf(h.Job))
	if lives, err := c.lives(ctx, h, ended); err != nil || lives {
		return err
	}
	return c.with(ctx, func(l *ledger.Ledger) error {
		for _, job := range ended {
			if err := l.End(job, c.Now(), h.Nodes...); err != nil {
				return err
			}
		}
		return nil
	})
}

// lives reports whether slurmctld says that the run which would end goes on. A script for
// the run before it may have outlived its slurmctld. Only jobs that were requeued have such.
func (c *Controller) lives(ctx context.Context, h slurm.Hook, ended []journal.ID) (bool, error) {
	if h.Job.Restart == 0 || !slices.Contains(ended, idOf(h.Job)) {
		return false, nil
	}
	job, err := c.Slurm.AdminComment(ctx, h.Record.Job)
	switch {
	case errors.Is(err, slurm.ErrUnknownJob):
		return false, nil
	case err != nil:
		return false, err
	}
	return job.Restart == h.Job.Restart && !slurm.Over(job.State), nil
}

// Force gives up the tags of an ended job that nobody confirms. The administrator has made
// sure that no node sends with them.
func (c *Controller) Force(ctx context.Context, job journal.ID) error {
	return c.with(ctx, func(l *ledger.Ledger) error { return l.Force(job, c.Now()) })
}

// Entries returns the jobs in the ledger; of one job, if it is not 0.
func (c *Controller) Entries(ctx context.Context, job uint32) (entries []ledger.Entry, err error) {
	err = c.with(ctx, func(l *ledger.Ledger) error {
		if job != 0 {
			entries, err = l.Entry(job)
		} else {
			entries, err = l.Entries()
		}
		return err
	})
	for i := range entries {
		entries[i].Reservation = redacted(entries[i].Reservation)
	}
	return entries, err
}
