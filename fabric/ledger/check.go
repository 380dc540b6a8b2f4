package ledger

import (
	"fmt"
	"slices"

	"github.com/slurm-v/slurm-v/journal"
)

// check looks for records that contradict each other.
func (f facts) check() error {
	if err := f.checkRecords(); err != nil {
		return err
	}
	if err := f.checkTags(); err != nil {
		return err
	}
	return f.checkCooling()
}

// checkRecords checks that each job is a holder of its tags.
func (f facts) checkRecords() (err error) {
	wrong := f.records("", func(r *record) bool {
		for t := range r.tags() {
			var h holding
			if h, _, err = f.holding(t); err == nil && slices.Contains(h.Jobs, r.job()) == r.Released {
				err = contradiction("job %s has %s; released: %v; its holders: %v", r.job(), tagKey(t), r.Released, h.Jobs)
			}
			if err != nil {
				return false
			}
		}
		return true
	})
	return firstOf(wrong, err)
}

// checkTags checks that each holder of a tag has it, that a tag with several is in
// quarantine, and that one without any cools.
func (f facts) checkTags() (err error) {
	f.scan(tags, "", func(key string, value []byte) bool {
		var h holding
		if err = decode(tags, key, value, &h); err == nil {
			err = f.checkHolding(key, h)
		}
		return err == nil
	})
	return err
}

func (f facts) checkHolding(key string, h holding) error {
	if len(h.Jobs) == 0 && f.get(cooling, timeKey(h.Since)+" "+key) == nil {
		return contradiction("%s cools since %v, but will not end", key, h.Since)
	}
	for _, id := range h.Jobs {
		r, err := f.record(id)
		if err != nil {
			return err
		}
		if r == nil || !r.has(key) {
			return contradiction("job %s holds %s, but has no record of it", id, key)
		}
		if known(h.Jobs) > 1 && r.Why == "" {
			return contradiction("%s has the holders %v, but job %s is not in quarantine", key, h.Jobs, id)
		}
	}
	return nil
}

// known is how many of the jobs are not [Unknown], which is nobody's rival.
func known(jobs []journal.ID) (n int) {
	for _, id := range jobs {
		if id != Unknown {
			n++
		}
	}
	return n
}

func (r *record) has(key string) bool {
	for t := range r.tags() {
		if tagKey(t) == key {
			return true
		}
	}
	return false
}

// checkCooling checks that the tags that cool have no holder.
func (f facts) checkCooling() error {
	all, err := f.colds()
	if err != nil {
		return err
	}
	for _, c := range all {
		h, _, err := f.holding(c.tag)
		if err != nil {
			return err
		}
		if len(h.Jobs) > 0 || !h.Since.Equal(c.since) {
			return contradiction("%s cools since %v, but its record says %v, holders %v", tagKey(c.tag), c.since, h.Since, h.Jobs)
		}
	}
	return nil
}

func contradiction(format string, args ...any) error { return damaged(fmt.Errorf(format, args...)) }

func firstOf(a, b error) error {
	if a != nil {
		return a
	}
	return b
}
