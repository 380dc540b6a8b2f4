package ledger

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/journal"
)

// A record is a run of a job that has tags, or multicast addresses.
type record struct {
	Reservation fabric.Reservation `json:"reservation"`
	Nodes       []string           `json:"nodes,omitempty"`     // that have not confirmed, in order
	Confirmed   []string           `json:"confirmed,omitempty"` // the others
	Boots       map[string]string  `json:"boots,omitempty"`     // of Nodes: the first boot id seen after the end
	Untold      bool               `json:"untold,omitempty"`    // no node can have heard of it
	Manager     bool               `json:"manager,omitempty"`   // the subnet manager has not confirmed
	Asked       time.Time          `json:"asked,omitzero"`      // when it was asked last
	Gone        int                `json:"gone,omitempty"`      // of how many ports, the first of the job, it has confirmed
	Began       time.Time          `json:"began"`
	Ended       time.Time          `json:"ended,omitzero"`
	Released    bool               `json:"released,omitempty"` // it has no tags any more
	Why         string             `json:"why,omitempty"`      // it is in quarantine
}

func (r *record) check(key string) error {
	if got := jobKey(r.Reservation.Job); got != key {
		return fmt.Errorf("it is of job %s", got)
	}
	for t := range r.tags() {
		if !slices.Contains(fabric.Kinds, t.kind) {
			return fmt.Errorf("unknown kind %q", t.kind)
		}
	}
	return nil
}

func (r *record) job() journal.ID { return r.Reservation.Job }

// tags are those of the job, also when they are released.
func (r *record) tags() map[tag]bool {
	set := map[tag]bool{}
	for _, g := range r.Reservation.Grants {
		for _, number := range g.Tags {
			set[tag{g.Kind, number}] = true
		}
	}
	return set
}

// confirmed reports whether nothing can have the job's tags any more.
func (r *record) confirmed() bool { return len(r.Nodes) == 0 && !r.Manager || len(r.tags()) == 0 }

// addNodes adds those that the record does not know.
func (r *record) addNodes(nodes []string) {
	for _, n := range nodes {
		if !slices.Contains(r.Confirmed, n) {
			r.Nodes = append(r.Nodes, n)
		}
	}
	slices.Sort(r.Nodes)
	r.Nodes = slices.Compact(r.Nodes)
}

// confirm reports whether the record has waited for the node.
func (r *record) confirm(node string) bool {
	at, waits := slices.BinarySearch(r.Nodes, node)
	if waits {
		r.Nodes = slices.Delete(r.Nodes, at, at+1)
		r.Confirmed = append(r.Confirmed, node)
	}
	return waits
}

// seen reports whether the node has booted since it was first seen after the end. It notes a node
// that is seen for the first time, and then reports whether it has done so.
func (r *record) seen(b Boot) (booted, noted bool) {
	first, found := r.Boots[b.Node]
	switch {
	case r.Ended.IsZero() || !slices.Contains(r.Nodes, b.Node):
		return false, false
	case found:
		return first != b.ID && !b.Holds, false
	}
	if r.Boots == nil {
		r.Boots = map[string]string{}
	}
	r.Boots[b.Node] = b.ID
	return false, true
}

// addWhy puts the record into quarantine, or gives one more reason for it.
func (r *record) addWhy(why string) {
	switch {
	case r.Why == "":
		r.Why = why
	case !strings.Contains(r.Why, why):
		r.Why += "; " + why
	}
}

func (r *record) state() State {
	switch {
	case r.Released:
		return Released
	case r.Why != "":
		return Quarantined
	case !r.Ended.IsZero():
		return Releasing
	}
	return Reserved
}

func (r *record) entry() Entry {
	return Entry{
		Reservation: r.Reservation, State: r.state(), Nodes: r.Nodes, Manager: r.Manager, Asked: r.Asked, Gone: r.Gone,
		Began: r.Began, Ended: r.Ended, Why: r.Why,
	}
}

// A tag of some kind. Pools do not overlap, so a kind has a number once.
type tag struct {
	kind   fabric.Kind
	number fabric.Tag
}

// A holding says who has a tag.
type holding struct {
	Jobs  []journal.ID `json:"jobs,omitempty"` // one, or several in conflict; none while the tag cools
	Since time.Time    `json:"since,omitzero"` // when it began to cool
}

func (h *holding) check(string) error {
	if (len(h.Jobs) == 0) == h.Since.IsZero() {
		return fmt.Errorf("it has %d jobs, and cools since %v", len(h.Jobs), h.Since)
	}
	return nil
}

func jobKey(id journal.ID) string { return fmt.Sprintf("%010d.%010d", id.Job, id.Restart) }

func tagKey(t tag) string {
	number := strconv.Itoa(int(t.number))
	return string(t.kind) + " " + "00000"[len(number):] + number
}

// parseTagKey reads what tagKey writes, and nothing else.
func parseTagKey(key string) (t tag, err error) {
	kind, text, _ := strings.Cut(key, " ")
	number, err := strconv.ParseUint(text, 10, 16)
	t = tag{fabric.Kind(kind), fabric.Tag(number)}
	if err != nil || tagKey(t) != key {
		return t, damaged(fmt.Errorf("%s: %q is no tag", tags, key))
	}
	return t, nil
}

// timeLayout is of one length in UTC, so that later times sort later.
const timeLayout = "2006-01-02T15:04:05.000000000Z"

func timeKey(at time.Time) string { return at.UTC().Format(timeLayout) }

func coolingKey(since time.Time, t tag) string { return timeKey(since) + " " + tagKey(t) }

// parseCoolingKey reads what coolingKey writes, and nothing else.
func parseCoolingKey(key string) (since time.Time, t tag, err error) {
	at, text, _ := strings.Cut(key, " ")
	if t, err = parseTagKey(text); err == nil {
		since, err = time.Parse(timeLayout, at)
	}
	if err == nil && coolingKey(since, t) != key {
		err = fmt.Errorf("it would be %q", coolingKey(since, t))
	}
	if err != nil {
		return since, t, damaged(fmt.Errorf("%s %q is damaged: %w", cooling, key, err))
	}
	return since, t, nil
}

// record returns the job's record, nil if it has none.
func (f facts) record(id journal.ID) (*record, error) {
	var r record
	found, err := f.read(jobs, jobKey(id), &r)
	if !found || err != nil {
		return nil, err
	}
	return &r, nil
}

func (f facts) save(r *record) error { return f.write(jobs, jobKey(r.job()), r) }

// holding returns who has a tag; ok is false if it is free.
func (f facts) holding(t tag) (h holding, ok bool, err error) {
	ok, err = f.read(tags, tagKey(t), &h)
	return h, ok, err
}

// notFree returns the tags that have a holder or cool, in order of their keys.
func (f facts) notFree() (all []tag, err error) {
	f.scan(tags, "", func(key string, _ []byte) bool {
		var t tag
		t, err = parseTagKey(key)
		all = append(all, t)
		return err == nil
	})
	return all, err
}

// records calls do with the records from a key on.
func (f facts) records(from string, do func(*record) (more bool)) (err error) {
	f.scan(jobs, from, func(key string, value []byte) bool {
		var r record
		if err = decode(jobs, key, value, &r); err != nil {
			return false
		}
		return do(&r)
	})
	return err
}
