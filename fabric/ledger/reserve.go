package ledger

import (
	"errors"
	"fmt"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/journal"
)

func (m machine) reserve(q Request, o Options, now time.Time) (fabric.Reservation, error) {
	old, err := m.record(q.Reservation.Job)
	if err != nil {
		return fabric.Reservation{}, err
	}
	if old != nil {
		return m.reserveAgain(old, q)
	}
	if err := q.check(); err != nil {
		return fabric.Reservation{}, err
	}
	if err := m.thaw(o.Cooling, now); err != nil {
		return fabric.Reservation{}, err
	}
	r := &record{Reservation: q.Reservation, Untold: true, Began: now}
	r.addNodes(q.Nodes)
	if r.Reservation.Grants, err = m.chooseAll(q.Wants, o); err != nil {
		return fabric.Reservation{}, err
	}
	return r.Reservation, m.begin(r)
}

// errRequest is what no request may be. It is a mistake of the caller.
var errRequest = errors.New("the request is incomplete")

func (q Request) check() error {
	if len(q.Nodes) == 0 {
		return fmt.Errorf("%w: it names no node", errRequest)
	}
	sum := map[fabric.Kind]int{}
	for _, w := range q.Wants {
		sum[w.Pool.Kind] += w.Count
		if w.Count < 0 || sum[w.Pool.Kind] > config.MaxVNIs {
			return &limitError{Kind: w.Pool.Kind, Want: max(w.Count, sum[w.Pool.Kind])}
		}
	}
	return nil
}

// reserveAgain answers a repeated request, whatever it wants: the job has its tags once. Its wish
// is the same, and if the site has got other pools since, nodes may have the tags already.
func (m machine) reserveAgain(old *record, q Request) (fabric.Reservation, error) {
	if was, is := old.Reservation, q.Reservation; was.UID != is.UID || was.Cluster != is.Cluster {
		return fabric.Reservation{}, &otherJobError{Job: was.Job, Cluster: was.Cluster, UID: was.UID}
	}
	if !old.Ended.IsZero() {
		return fabric.Reservation{}, ErrEnded
	}
	old.addNodes(q.Nodes)
	return old.Reservation, m.save(old)
}

// chooseAll chooses the tags for all wants, and changes nothing.
func (m machine) chooseAll(wants []Want, o Options) (grants []fabric.Grant, err error) {
	taken := map[tag]bool{}
	for _, w := range wants {
		g := fabric.Grant{Pool: w.Pool.Name, Kind: w.Pool.Kind, Why: w.Why}
		if w.Count > 0 {
			g.Tags, err = m.choose(w, o.Cooling, taken)
			g.Why = ""
		}
		var exhausted *ExhaustedError
		if o.EmptyIfExhausted && w.Pool.Kind == fabric.VNI && errors.As(err, &exhausted) {
			g.Why, err = exhausted.why(), nil
		}
		if err != nil {
			return nil, err
		}
		grants = append(grants, g)
	}
	return grants, nil
}

// choose returns free tags of a pool, from the last one given on, and adds them to taken.
func (m machine) choose(w Want, cooling time.Duration, taken map[tag]bool) ([]fabric.Tag, error) {
	last, err := m.last(w.Pool.Name)
	if err != nil {
		return nil, err
	}
	var free []fabric.Tag
	err = m.unheld(w.Pool, last, func(number fabric.Tag) bool {
		if !taken[tag{w.Pool.Kind, number}] {
			free = append(free, number)
		}
		return len(free) < w.Count
	})
	if err != nil {
		return nil, err
	}
	if len(free) == w.Count {
		for _, number := range free {
			taken[tag{w.Pool.Kind, number}] = true
		}
		return free, nil
	}
	next, err := m.next(w.Pool, w.Count-len(free), cooling)
	if err != nil {
		return nil, err
	}
	return nil, &ExhaustedError{
		Pool: w.Pool.Name, Kind: w.Pool.Kind, Want: w.Count, Free: len(free), Size: w.Pool.Size(), Next: next,
	}
}

// unheld calls do with a pool's tags that are free, those above last, then the others, until
// do returns false.
func (m machine) unheld(p fabric.Pool, last fabric.Tag, do func(fabric.Tag) (more bool)) error {
	for _, r := range turn(p.Tags, last) {
		if more, err := m.unheldIn(p.Kind, r, do); err != nil || !more {
			return err
		}
	}
	return nil
}

// turn returns ranges so that they begin above last.
func turn(ranges []fabric.Range, last fabric.Tag) []fabric.Range {
	var above, others []fabric.Range
	for _, r := range ranges {
		if r.Last > last {
			above = append(above, fabric.Range{First: max(r.First, last+1), Last: r.Last})
		}
		if r.First <= last {
			others = append(others, fabric.Range{First: r.First, Last: min(r.Last, last)})
		}
	}
	return append(above, others...)
}

// unheldIn calls do with the free tags of a range, as [machine.unheld] does. It goes along
// the keys of the others: to look up each tag would take ten times as long.
func (m machine) unheldIn(kind fabric.Kind, r fabric.Range, do func(fabric.Tag) bool) (more bool, err error) {
	n := int(r.First)
	until := func(end int) bool {
		for ; n < end; n++ {
			if !do(fabric.Tag(n)) {
				return false
			}
		}
		return true
	}
	more = true
	m.scan(tags, tagKey(tag{kind, r.First}), func(key string, _ []byte) bool {
		if key > tagKey(tag{kind, r.Last}) {
			return false
		}
		var held tag
		if held, err = parseTagKey(key); err != nil {
			return false
		}
		more = until(int(held.number))
		n = int(held.number) + 1
		return more
	})
	return more && err == nil && until(int(r.Last)+1), err
}

func lastKey(pool string) string { return "last " + pool }

// last returns the last tag of a pool that was given.
func (f facts) last(pool string) (last fabric.Tag, err error) {
	_, err = f.read(meta, lastKey(pool), &last)
	return last, err
}

// begin makes the record, and the job the holder of its tags.
func (m machine) begin(r *record) error {
	for _, g := range r.Reservation.Grants {
		if len(g.Tags) == 0 {
			continue
		}
		r.Manager = r.Manager || g.Kind == fabric.PKey
		if err := m.write(meta, lastKey(g.Pool), g.Tags[len(g.Tags)-1]); err != nil {
			return err
		}
	}
	for t := range r.tags() {
		if err := m.write(tags, tagKey(t), holding{Jobs: []journal.ID{r.job()}}); err != nil {
			return err
		}
	}
	return m.save(r)
}
