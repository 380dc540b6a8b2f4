package controller

import (
	"context"
	"errors"
	"fmt"

	"github.com/slurm-v/slurm-v/fabric/ledger"
	"github.com/slurm-v/slurm-v/fabric/letter"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
)

// Sweep finds out which jobs have ended without a word, which nodes have confirmed or
// rebooted, and lets the managers forget ended jobs. It returns how many facts are new, and
// the errors of those parts that did not work; the other parts have been done.
func (c *Controller) Sweep(ctx context.Context) (news int, err error) {
	heard, nodesErr := c.sweepNodes(ctx)
	forgotten, managersErr := c.sweepManagers(ctx)
	return heard + forgotten, errors.Join(nodesErr, managersErr)
}

// sweepNodes ends the runs that slurmctld does not have, and hears the nodes of those that
// have ended. One process at a time asks slurmctld.
func (c *Controller) sweepNodes(ctx context.Context) (news int, err error) {
	return c.alone(ctx, sweepLock, func(entries []ledger.Entry) (int, error) {
		s := sweep{c}
		ended, err := s.endStale(ctx, entries)
		if ended > 0 {
			var again error
			entries, again = c.look(ctx)
			err = errors.Join(err, again)
		}
		heard, nodesErr := s.hearNodes(ctx, entries)
		return ended + heard, errors.Join(err, nodesErr)
	})
}

// alone calls do with what is in the ledger, unless that is nothing. No other process has the
// lock meanwhile.
func (c *Controller) alone(ctx context.Context, lock string, do func([]ledger.Entry) (news int, err error)) (news int, err error) {
	unlock, err := locks(c.Dir).wait(ctx, lock)
	if err != nil {
		return 0, err
	}
	defer unlock()
	entries, err := c.look(ctx)
	if err != nil || len(entries) == 0 {
		return 0, err
	}
	return do(entries)
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

// hearNodes records what the nodes confirm for which ended jobs wait, and asks those that say nothing.
func (s sweep) hearNodes(ctx context.Context, entries []ledger.Entry) (int, error) {
	w, err := s.ask(ctx, entries)
	if err != nil {
		return 0, err
	}
	if !w.none() {
		err = s.with(ctx, func(l *ledger.Ledger) error { return s.believe(l, w) })
	}
	if err != nil {
		return 0, err
	}
	return len(w.heard), s.askAll(ctx, w)
}

// askAll asks nodes, in their Comments, to confirm runs: the epilogs never came there if slurmctld
// has forgotten that the jobs began. It comes after [sweep.believe], since the letters go by this.
// `slurmv clean`, which answers, writes a new one.
func (s sweep) askAll(ctx context.Context, w word) (err error) {
	for node, runs := range w.unsaid {
		if one := s.askFor(ctx, node, runs, w.letters[node]); one != nil {
			err = errors.Join(err, fmt.Errorf("ask node %s to confirm the end of %d jobs: %w", node, len(runs), one))
		}
	}
	return err
}

// askFor leaves a node alone that has written another letter than the one that was heard.
func (s sweep) askFor(ctx context.Context, node string, runs []journal.ID, heard string) error {
	comment, err := s.Slurm.NodeComment(ctx, node)
	if err != nil {
		return err
	}
	if text, _ := letter.Block(comment); text != heard {
		return nil
	}
	return s.Slurm.SetNodeComment(ctx, node, letter.PutAsks(comment, runs))
}

// A word is what nodes say: their confirmations, and in which boots they are. unsaid are the runs,
// by node, of which nodes say nothing, though they should; letters are the texts of these nodes.
type word struct {
	heard   []ledger.Confirmation
	boots   []ledger.Boot
	unsaid  map[string][]journal.ID
	letters map[string]string
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

// read reads the nodes' statements.
func (s sweep) read(key letter.Key, records map[string]slurm.NodeRecord, entries []ledger.Entry) word {
	all := s.statements(key, records)
	w := word{unsaid: toAsk(entries, records, all, s.Now()), letters: map[string]string{}}
	for node := range w.unsaid {
		w.letters[node], _ = letter.Block(records[node].Comment)
	}
	for _, said := range all {
		w.heard = append(w.heard, confirmations(entries, said)...)
		w.boots = append(w.boots, boots(entries, said)...)
	}
	return w
}

// statements opens the nodes' statements. A node may have none yet.
func (s sweep) statements(key letter.Key, records map[string]slurm.NodeRecord) (all []letter.Statement) {
	for _, r := range records {
		var said letter.Statement
		switch err := letter.Find(key, letter.NodeSubject(s.Cluster, r.Name), r.Comment, &said); {
		case errors.Is(err, letter.ErrNone):
		case err != nil:
			s.warn("node %s: %v", r.Name, err)
		case said.Node == r.Name:
			all = append(all, said)
		}
	}
	return all
}
