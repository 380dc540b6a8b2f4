package ledger

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/journal"
)

func (m machine) adopt(r fabric.Reservation, nodes []string, began, now time.Time) error {
	if len(nodes) == 0 {
		return fmt.Errorf("%w: it names no node", errRequest)
	}
	known, err := m.record(r.Job)
	if err != nil || known != nil && known.Released {
		return err // a job that has released its tags no longer runs: the caller's news is old
	}
	if known == nil {
		known = &record{Reservation: r, Began: began}
	}
	known.addNodes(nodes)
	known.addGrants(r.Grants)
	conflicts, err := m.claim(known)
	if err != nil {
		return err
	}
	return errors.Join(m.settle(known, now), errors.Join(conflicts...))
}

// addGrants adds those with tags that the record does not have.
func (r *record) addGrants(grants []fabric.Grant) {
	have := r.tags()
	for _, g := range grants {
		r.Manager = r.Manager || g.Kind == fabric.PKey && r.Ended.IsZero() && len(g.Tags) > 0
		g.Tags = slices.DeleteFunc(slices.Clone(g.Tags), func(n fabric.Tag) bool { return have[tag{g.Kind, n}] })
		if len(g.Tags) > 0 {
			r.Reservation.Grants = append(slices.Clone(r.Reservation.Grants), g)
		}
	}
}

// claim makes the job a holder of its tags, and returns a [*ConflictError] for each other
// holder. With [Unknown] there is no conflict: it may be the same job.
func (m machine) claim(r *record) (conflicts []error, err error) {
	for t := range r.tags() {
		others, err := m.claimTag(t, r.job())
		if err != nil {
			return nil, err
		}
		for _, other := range others {
			if other == Unknown || r.job() == Unknown {
				continue
			}
			c := &ConflictError{Kind: t.kind, Tag: t.number, Job: r.job(), Other: other}
			r.addWhy(c.why(other))
			if err := m.accuse(other, c.why(r.job())); err != nil {
				return nil, err
			}
			conflicts = append(conflicts, c)
		}
	}
	return conflicts, nil
}

// claimTag makes the job a holder of a tag, and returns the others.
func (m machine) claimTag(t tag, id journal.ID) (others []journal.ID, err error) {
	h, found, err := m.holding(t)
	if err != nil {
		return nil, err
	}
	if found && len(h.Jobs) == 0 {
		if err := m.warm(cold{t, h.Since}); err != nil {
			return nil, err
		}
	}
	others = slices.DeleteFunc(slices.Clone(h.Jobs), func(j journal.ID) bool { return j == id })
	return others, m.write(tags, tagKey(t), holding{Jobs: append(slices.Clip(others), id)})
}

// accuse puts the tags of a job that has another job's tag into quarantine.
func (m machine) accuse(id journal.ID, why string) error {
	r, err := m.record(id)
	if err != nil {
		return err
	}
	if r == nil {
		return damaged(fmt.Errorf("%s: job %s has tags, but no record", tags, id))
	}
	r.addWhy(why)
	return m.save(r)
}
