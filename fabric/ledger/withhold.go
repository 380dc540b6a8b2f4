package ledger

import (
	"errors"
	"time"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/journal"
)

// Unknown stands for the jobs of which nothing is known but their tags. Slurm's numbers begin
// with 1.
var Unknown = journal.ID{}

// whyWithheld is the reason of the quarantine of such tags.
const whyWithheld = "it was not free when the ledger was lost, and the old copy that was put back does not say whose it was"

// isOld reports whether the ledger is an old copy that nothing was withheld for yet.
func (f facts) isOld() (old bool, err error) {
	_, err = f.read(meta, "old", &old)
	return old, err
}

func (f facts) setOld(old bool) error { return f.write(meta, "old", old) }

// growOld notes that the ledger is an old copy. Nodes may have been told since of the jobs that are
// untold in it.
func (m machine) growOld() error {
	entries, err := m.entries()
	for _, e := range entries {
		if e.Ended.IsZero() {
			err = errors.Join(err, m.tell(e.Reservation.Job))
		}
	}
	return errors.Join(err, m.setOld(true))
}

// withhold makes [Unknown] a holder of all tags that were taken, but for those of jobs that run. The
// other holders that an old copy knows may be those of long ago.
func (m machine) withhold(taken []tag, now time.Time) (n int, err error) {
	r, err := m.record(Unknown)
	if err != nil {
		return 0, err
	}
	if r == nil {
		r = &record{Reservation: fabric.Reservation{Job: Unknown}, Began: now, Ended: now, Why: whyWithheld}
	}
	lost := map[fabric.Kind][]fabric.Tag{}
	for _, t := range taken {
		runs, err := m.runs(t)
		if err != nil {
			return 0, err
		}
		if !runs {
			lost[t.kind] = append(lost[t.kind], t.number)
		}
	}
	for _, kind := range fabric.Kinds {
		r.addGrants([]fabric.Grant{{Kind: kind, Tags: lost[kind]}})
	}
	if n = len(r.tags()); n == 0 {
		return 0, nil
	}
	_, err = m.claim(r)
	return n, errors.Join(err, m.save(r))
}

// runs reports whether a tag's holder is a job that has not ended.
func (f facts) runs(t tag) (bool, error) {
	h, _, err := f.holding(t)
	for _, id := range h.Jobs {
		r, wrong := f.record(id)
		if wrong != nil || r != nil && r.Ended.IsZero() {
			return true, wrong
		}
	}
	return false, err
}
