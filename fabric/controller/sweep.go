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

// Sweep finds out which jobs have ended without a word, which nodes have confirmed or
// rebooted, and lets the managers forget ended jobs. It returns how many facts are new, and
// the errors of those parts that did not work; the other parts have been done. Of several
// processes one sweeps at a time: a P_Key may have got new members since an older look.
func (c *Controller) Sweep(ctx context.Context) (news int, err error) {
	unlock, err := locks(c.Dir).wait(ctx)
	if err != nil {
		return 0, err
	}
	defer unlock()
	entries, err := c.look(ctx)
	if err != nil || len(entries) == 0 {
		return 0, err
	}
	s := sweep{c}
	ended, err := s.endStale(ctx, entries)
	if ended > 0 {
		var again error
		entries, again = c.look(ctx)
		err = errors.Join(err, again)
	}
	confirmed, nodesErr := s.hearNodes(ctx, entries)
	forgotten, managersErr := s.forget(ctx, entries)
	return ended + confirmed + forgotten, errors.Join(err, nodesErr, managersErr, s.compareSessions(ctx, entries))
}

// look returns what is in the ledger, once it agrees with slurmctld.
func (c *Controller) look(ctx context.Context) (entries []ledger.Entry, err error) {
	err = c.with(ctx, func(l *ledger.Ledger) error {
		if err := c.reconcileOnce(ctx, l, false); err != nil {
			return err
		}
		entries, err = l.Entries()
		return err
	})
	return entries, err
}

// A sweep is one look for what can be released.
type sweep struct{ *Controller }

// endStale ends the runs that slurmctld does not have. entries are older than its answer.
func (s sweep) endStale(ctx context.Context, entries []ledger.Entry) (int, error) {
	if len(stale(entries, nil)) == 0 {
		return 0, nil
	}
	active, err := s.Slurm.ActiveRuns(ctx)
	if err != nil {
		return 0, fmt.Errorf("ask which jobs run: %w", err)
	}
	ended := stale(entries, active)
	if len(ended) == 0 {
		return 0, nil
	}
	return len(ended), s.with(ctx, func(l *ledger.Ledger) error {
		for _, job := range ended {
			if err := l.End(job, s.Now()); err != nil {
				return err
			}
		}
		return nil
	})
}

// hearNodes records what the nodes confirm for which ended jobs wait.
func (s sweep) hearNodes(ctx context.Context, entries []ledger.Entry) (int, error) {
	w, err := s.ask(ctx, entries)
	if err != nil || w.none() {
		return 0, err
	}
	return len(w.heard), s.with(ctx, func(l *ledger.Ledger) error { return s.believe(l, w) })
}

// A word is what nodes say: their confirmations, and when they have booted.
type word struct {
	heard []ledger.Confirmation
	boots map[string]time.Time
}

func (w word) none() bool { return len(w.heard) == 0 && len(w.boots) == 0 }

func (s sweep) believe(l *ledger.Ledger, w word) error {
	return errors.Join(l.Confirm(w.heard, s.Now()), l.Rebooted(w.boots, s.Now()))
}

// ask reads the statements of the nodes for which ended jobs wait.
func (s sweep) ask(ctx context.Context, entries []ledger.Entry) (w word, err error) {
	nodes := silent(entries)
	if len(nodes) == 0 {
		return w, nil
	}
	key, err := s.key()
	if err != nil {
		return w, err
	}
	records, err := s.Slurm.NodeRecords(ctx, nodes)
	if err != nil {
		return w, fmt.Errorf("ask for the statements of nodes: %w", err)
	}
	return s.read(key, records, entries), nil
}

// read opens the nodes' statements. A node without one has released nothing yet.
func (s sweep) read(key letter.Key, records map[string]slurm.NodeRecord, entries []ledger.Entry) word {
	w := word{boots: map[string]time.Time{}}
	for _, r := range records {
		if !r.Boot.IsZero() {
			w.boots[r.Name] = r.Boot
		}
		var said letter.Statement
		switch err := letter.Find(key, letter.NodeSubject(s.Cluster, r.Name), r.Comment, &said); {
		case errors.Is(err, letter.ErrNone):
		case err != nil:
			s.warn("node %s: %v", r.Name, err)
		case said.Node == r.Name:
			w.heard = append(w.heard, confirmations(entries, r.Name, said)...)
		}
	}
	return w
}

// forget lets the managers remove what they have of ended jobs.
func (s sweep) forget(ctx context.Context, entries []ledger.Entry) (news int, err error) {
	for _, e := range entries {
		if e.Ended.IsZero() {
			continue
		}
		if e.Manager {
			one := s.leave(ctx, e, entries)
			err = errors.Join(err, one)
			news += successes(one)
		}
		if e.Reservation.Collectives != nil {
			one := s.releaseCollectives(ctx, e)
			err = errors.Join(err, one)
			news += successes(one)
		}
	}
	return news, err
}

func successes(err error) int {
	if err == nil {
		return 1
	}
	return 0
}

// leave removes the members of a job's P_Keys, and records that the subnet manager has
// confirmed it.
func (s sweep) leave(ctx context.Context, e ledger.Entry, entries []ledger.Entry) error {
	ports := e.Reservation.Ports()
	ctx, cancel := context.WithTimeout(ctx, managerWait)
	defer cancel()
	for _, pkey := range abandoned(e, entries) {
		if s.Subnet == nil || len(ports) == 0 {
			break
		}
		if err := s.Subnet.Leave(ctx, pkey, ports); err != nil {
			return fmt.Errorf("job %s: remove the members of P_Key %s: %w", e.Reservation.Job, pkey.Text(fabric.PKey), err)
		}
	}
	return s.with(context.WithoutCancel(ctx), func(l *ledger.Ledger) error { return l.ConfirmManager(e.Reservation.Job, s.Now()) })
}

func (s sweep) releaseCollectives(ctx context.Context, e ledger.Entry) error {
	if s.Fabric == nil {
		return nil // an administrator has taken the fabric manager out of the configuration
	}
	if err := s.Fabric.Release(ctx, e.Reservation.Collectives.Session); err != nil {
		return fmt.Errorf("job %s: release its multicast addresses: %w", e.Reservation.Job, err)
	}
	return s.record(ctx, e.Reservation.Job, nil)
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
	for _, session := range s.Fabric.Stale(s.Cluster, listed, jobsOf(after)) {
		err = errors.Join(err, s.Fabric.Release(ctx, session))
	}
	return err
}
