package ledger

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/journal"
)

// State is the state of a tag, or of all tags of a job.
type State string

// The values of State. Free tags have no record.
const (
	Reserved    State = "reserved"
	Releasing   State = "releasing"   // the job has ended; Nodes or Manager have not confirmed
	Cooling     State = "cooling"     // of a tag: everything is confirmed, the cooling time is not over
	Quarantined State = "quarantined" // until an administrator forces it
	Released    State = "released"    // of a job: it has no tags any more, but still multicast addresses
)

// An Entry is a run of a job in the ledger.
type Entry struct {
	Reservation fabric.Reservation `json:"reservation"`
	State       State              `json:"state"`
	Nodes       []string           `json:"nodes,omitempty"`   // that have not confirmed, in order
	Manager     bool               `json:"manager,omitempty"` // the subnet manager has not confirmed
	Asked       time.Time          `json:"asked,omitzero"`    // when the subnet manager was asked last, without the whole confirmation
	Gone        int                `json:"gone,omitempty"`    // of how many ports, the first of the job, the subnet manager has confirmed
	Began       time.Time          `json:"began"`
	Ended       time.Time          `json:"ended,omitzero"` // zero: it runs, as far as the ledger knows
	Why         string             `json:"why,omitempty"`  // of Quarantined
}

// A PoolState is what is with the tags of a pool.
type PoolState struct {
	Pool  fabric.Pool    `json:"pool"`
	Free  []fabric.Range `json:"free"`
	Last  fabric.Tag     `json:"last"`  // the last one given; 0 at first
	Taken []TagState     `json:"taken"` // the others, in order
}

// A TagState is what is with a tag that is not free.
type TagState struct {
	Tag     fabric.Tag   `json:"tag"`
	State   State        `json:"state"`
	Jobs    []journal.ID `json:"jobs,omitempty"`    // that have it: one, or several in conflict; none while it cools
	Nodes   []string     `json:"nodes,omitempty"`   // that have not confirmed, of Releasing and Quarantined
	Manager bool         `json:"manager,omitempty"` // the subnet manager has not confirmed
	Until   time.Time    `json:"until,omitzero"`    // of Cooling
	Why     string       `json:"why,omitempty"`     // of Quarantined
}

func (f facts) entries() ([]Entry, error) {
	var all []Entry
	err := f.records("", func(r *record) bool {
		all = append(all, r.entry())
		return true
	})
	return all, err
}

func (f facts) entriesOf(job uint32) ([]Entry, error) {
	var all []Entry
	err := f.records(jobKey(journal.ID{Job: job}), func(r *record) bool {
		if r.job().Job != job {
			return false
		}
		all = append(all, r.entry())
		return true
	})
	return all, err
}

func (f facts) pools(pools []fabric.Pool, cooling time.Duration, now time.Time) ([]PoolState, error) {
	var all []PoolState
	for _, p := range pools {
		s, err := f.pool(p, cooling, now)
		if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

func (f facts) pool(p fabric.Pool, cooling time.Duration, now time.Time) (PoolState, error) {
	s := PoolState{Pool: p}
	var err error
	if s.Last, err = f.last(p.Name); err != nil {
		return s, err
	}
	for _, r := range p.Tags {
		for n := int(r.First); n <= int(r.Last); n++ {
			t, err := f.tagState(tag{p.Kind, fabric.Tag(n)}, cooling, now)
			if err != nil {
				return s, err
			}
			s.add(fabric.Tag(n), t)
		}
	}
	outside, err := f.outside(p, cooling, now)
	s.Taken = append(s.Taken, outside...)
	slices.SortFunc(s.Taken, func(a, b TagState) int { return cmp.Compare(a.Tag, b.Tag) })
	return s, err
}

// outside returns the tags that jobs have from a pool, and that are not in its ranges any more.
// One that cools is not among them: nothing says of which pool it was.
func (f facts) outside(p fabric.Pool, cooling time.Duration, now time.Time) (taken []TagState, err error) {
	seen := map[fabric.Tag]bool{}
	wrong := f.records("", func(r *record) bool {
		for _, number := range r.outside(p) {
			var t *TagState
			if t, err = f.tagState(tag{p.Kind, number}, cooling, now); err != nil {
				return false
			}
			if t != nil && !seen[number] && slices.Contains(t.Jobs, r.job()) {
				seen[number], taken = true, append(taken, *t)
			}
		}
		return true
	})
	return taken, firstOf(wrong, err)
}

func (r *record) outside(p fabric.Pool) (numbers []fabric.Tag) {
	for _, g := range r.Reservation.Grants {
		for _, number := range g.Tags {
			if g.Pool == p.Name && g.Kind == p.Kind && !p.Has(number) {
				numbers = append(numbers, number)
			}
		}
	}
	return numbers
}

// add adds a tag, which is free if its state is nil.
func (s *PoolState) add(number fabric.Tag, t *TagState) {
	if t == nil {
		s.Free = appendTag(s.Free, number)
	} else {
		s.Taken = append(s.Taken, *t)
	}
}

// appendTag adds a tag above all others to ranges.
func appendTag(ranges []fabric.Range, number fabric.Tag) []fabric.Range {
	if n := len(ranges); n > 0 && ranges[n-1].Last == number-1 {
		ranges[n-1].Last = number
		return ranges
	}
	return append(ranges, fabric.Range{First: number, Last: number})
}

// tagState returns nil for a tag that is free, or is as soon as somebody asks for it.
func (f facts) tagState(t tag, cooling time.Duration, now time.Time) (*TagState, error) {
	h, found, err := f.holding(t)
	if !found || err != nil {
		return nil, err
	}
	s := &TagState{Tag: t.number, State: Cooling, Jobs: h.Jobs}
	if len(h.Jobs) == 0 {
		s.Until = earlier(h.Since, now).Add(cooling)
		if !s.Until.After(now) {
			return nil, nil
		}
	}
	for _, id := range h.Jobs {
		r, err := f.record(id)
		if err != nil {
			return nil, err
		}
		if r != nil {
			s.add(r)
		}
	}
	return s, nil
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// add adds what is with one of the tag's jobs.
func (s *TagState) add(r *record) {
	if s.State != Quarantined {
		s.State = r.state()
	}
	if r.state() == Reserved {
		return
	}
	s.Nodes = append(s.Nodes, r.Nodes...)
	s.Manager = s.Manager || r.Manager
	if r.Why != "" {
		s.Why = strings.TrimPrefix(s.Why+"; "+r.Why, "; ")
	}
}
