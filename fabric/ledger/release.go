package ledger

import (
	"slices"
	"time"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/journal"
)

func (m machine) end(id journal.ID, now time.Time, nodes ...string) error {
	r, err := m.record(id)
	if err != nil || r == nil || !r.Ended.IsZero() {
		return err
	}
	r.addNodes(nodes)
	if r.Untold {
		r.Nodes = nil
	}
	r.Ended = now
	return m.settle(r, now)
}

func (m machine) tell(id journal.ID) error {
	r, err := m.record(id)
	switch {
	case err != nil:
		return err
	case r == nil || !r.Ended.IsZero():
		return ErrEnded
	}
	r.Untold = false
	return m.save(r)
}

func (m machine) confirm(all []Confirmation, now time.Time) error {
	nodes := map[journal.ID][]string{}
	for _, c := range all {
		nodes[c.Job] = append(nodes[c.Job], c.Node)
	}
	for id, names := range nodes {
		if err := m.confirmNodes(id, names, now); err != nil {
			return err
		}
	}
	return nil
}

func (m machine) confirmNodes(id journal.ID, nodes []string, now time.Time) error {
	r, err := m.record(id)
	if err != nil || r == nil || r.Ended.IsZero() {
		return err
	}
	waited := false
	for _, n := range nodes {
		waited = r.confirm(n) || waited
	}
	if !waited {
		return nil
	}
	return m.settle(r, now)
}

func (m machine) rebooted(all []Boot, now time.Time) error {
	var gone []Confirmation
	for _, b := range all {
		r, err := m.record(b.Job)
		if err != nil {
			return err
		}
		if r == nil {
			continue
		}
		booted, noted := r.seen(b)
		if booted {
			gone = append(gone, Confirmation{Job: b.Job, Node: b.Node})
		}
		if noted {
			err = m.save(r)
		}
		if err != nil {
			return err
		}
	}
	return m.confirm(gone, now)
}

func (m machine) confirmManager(id journal.ID, now time.Time) error {
	r, err := m.record(id)
	if err != nil || r == nil || r.Ended.IsZero() || !r.Manager {
		return err
	}
	r.Manager = false
	return m.settle(r, now)
}

func (m machine) askedManager(id journal.ID, gone int, now time.Time) error {
	r, err := m.record(id)
	if err != nil || r == nil || r.Ended.IsZero() || !r.Manager {
		return err
	}
	r.Asked, r.Gone = now, max(r.Gone, gone)
	return m.save(r)
}

// settle saves a changed record. If nothing is missing any more, it gives up its tags.
func (m machine) settle(r *record, now time.Time) error {
	if r.Released || r.Ended.IsZero() || r.Why != "" || !r.confirmed() {
		return m.save(r)
	}
	return m.release(r, now)
}

// release gives up the tags of a record, and the record if nothing else keeps it.
func (m machine) release(r *record, now time.Time) error {
	for t := range r.tags() {
		if err := m.leave(t, r.job(), now); err != nil {
			return err
		}
	}
	r.Released, r.Why, r.Nodes, r.Manager = true, "", nil, false
	if r.Reservation.Collectives != nil {
		return m.save(r)
	}
	return m.remove(jobs, jobKey(r.job()))
}

// leave takes a tag from a job. It cools unless another job has it, too.
func (m machine) leave(t tag, id journal.ID, now time.Time) error {
	h, _, err := m.holding(t)
	if err != nil || !slices.Contains(h.Jobs, id) {
		return err
	}
	if h.Jobs = slices.DeleteFunc(h.Jobs, func(j journal.ID) bool { return j == id }); len(h.Jobs) > 0 {
		return m.write(tags, tagKey(t), h)
	}
	return m.cool(t, now)
}

func (m machine) force(id journal.ID, now time.Time) error {
	r, err := m.record(id)
	if err != nil {
		return err
	}
	switch {
	case r == nil || r.Released:
		return errUnknown
	case r.Ended.IsZero():
		return ErrRunning
	}
	return m.release(r, now)
}

func (m machine) setCollectives(id journal.ID, c *fabric.Collectives) error {
	r, err := m.record(id)
	if err != nil {
		return err
	}
	switch {
	case r == nil && c == nil:
		return nil
	case r == nil:
		return errUnknown
	case r.Released && c == nil:
		return m.remove(jobs, jobKey(id))
	case !r.Ended.IsZero() && c != nil:
		return ErrEnded
	}
	r.Reservation.Collectives = c
	return m.save(r)
}
