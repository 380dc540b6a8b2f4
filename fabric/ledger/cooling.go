package ledger

import (
	"errors"
	"time"

	"github.com/slurm-v/slurm-v/fabric"
)

// cool makes a tag, which nobody has any more, cool from now on.
func (m machine) cool(t tag, now time.Time) error {
	if err := m.write(tags, tagKey(t), holding{Since: now}); err != nil {
		return err
	}
	return m.write(cooling, coolingKey(now, t), true)
}

// A cold is a tag that cools.
type cold struct {
	tag
	since time.Time
}

// colds returns the tags that cool, beginning with the earliest.
func (f facts) colds() ([]cold, error) { return f.coldsFrom("", func(cold) bool { return true }) }

// coldsFrom returns the tags that cool since a time, a key of it, as long as they are wanted.
func (f facts) coldsFrom(from string, wanted func(cold) bool) (all []cold, err error) {
	f.scan(cooling, from, func(key string, _ []byte) bool {
		var c cold
		c.since, c.tag, err = parseCoolingKey(key)
		if err != nil || !wanted(c) {
			return false
		}
		all = append(all, c)
		return true
	})
	return all, err
}

// thaw frees the tags that have cooled. A tag that cools since a time that is still to come
// began to cool by a clock that was wrong: it begins again. It does not read those in between:
// many jobs may have ended within the cooling time.
func (m machine) thaw(cooling time.Duration, now time.Time) error {
	cooled, err := m.coldsFrom("", func(c cold) bool { return now.Sub(c.since) >= cooling })
	if err != nil {
		return err
	}
	future, err := m.coldsFrom(timeKey(now), func(cold) bool { return true })
	for _, c := range cooled {
		err = errors.Join(err, m.warm(c))
	}
	for _, c := range future {
		if c.since.After(now) {
			err = errors.Join(err, m.warm(c), m.cool(c.tag, now))
		}
	}
	return err
}

// warm ends the cooling of a tag. Without another holder it is free.
func (m machine) warm(c cold) error {
	if err := m.remove(tags, tagKey(c.tag)); err != nil {
		return err
	}
	return m.remove(cooling, coolingKey(c.since, c.tag))
}

// next returns when n tags of a pool will have cooled; zero if fewer cool.
func (f facts) next(p fabric.Pool, n int, cooling time.Duration) (time.Time, error) {
	all, err := f.colds()
	for _, c := range all {
		if c.kind != p.Kind || !p.Has(c.number) {
			continue
		}
		if n--; n == 0 {
			return c.since.Add(cooling), err
		}
	}
	return time.Time{}, err
}
