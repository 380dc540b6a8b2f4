package letter

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/journal"
)

// A Statement is what a node says to the controller: it has undone the tags of some jobs, and
// read back that they are gone; and it has those of others.
type Statement struct {
	Node     string       // name in Slurm
	Boot     string       // the boot id of the node's kernel when it said so
	Released []journal.ID // the newest last, as many as a letter has room for
	Held     []Holding    // by job, those of the lowest numbers, as many as [heldRoom] has room for
	More     bool         // the node has tags of further jobs
}

// A Holding is the tags of a run that a node has made, and not undone. With them the controller
// can take the run into its ledger if nobody else knows it any more.
type Holding struct {
	Job  journal.ID                   `json:"-"`
	UID  uint32                       `json:"uid"`
	Tags map[fabric.Kind][]fabric.Tag `json:"tags"`
	VMs  int                          `json:"vms,omitempty"` // see [fabric.Reservation]
	VFs  int                          `json:"vfs,omitempty"`
}

// HoldingOf returns what a node has of a reservation once it has made its tags.
func HoldingOf(r fabric.Reservation) Holding {
	h := Holding{Job: r.Job, UID: r.UID, VMs: r.VMs, VFs: r.VFs, Tags: map[fabric.Kind][]fabric.Tag{}}
	for _, kind := range fabric.Kinds {
		if tags := r.Tags(kind); len(tags) > 0 {
			h.Tags[kind] = tags
		}
	}
	return h
}

// heldRoom bounds what is held in a statement, in bytes of JSON: some thirty runs. The rest of
// the letter is for confirmations, without which no tag comes back.
const heldRoom = 1500

// With returns the statement with this release as the newest. Of the oldest it forgets those
// that its letter has no room for.
func (s Statement) With(job journal.ID) Statement {
	s = s.Without(job)
	s.Released = append(s.Released, job)
	return s.fitted()
}

// fitted returns the statement without the oldest releases that its letter has no room for.
func (s Statement) fitted() Statement {
	for len(s.Released) > 1 && !s.fits() {
		s.Released = s.Released[1:]
	}
	return s
}

// fits reports whether [Seal] takes the statement.
func (s Statement) fits() bool {
	plain, err := json.Marshal(s)
	return err == nil && sealedLen(plain) <= maxText
}

// Without returns the statement without this job: one that gets tags on the node has not
// released them.
func (s Statement) Without(job journal.ID) Statement {
	s.Released = slices.DeleteFunc(slices.Clone(s.Released), func(id journal.ID) bool { return id == job })
	return s
}

// Holding returns the statement with these runs as all that the node holds. Those with the
// lowest numbers have begun first, so a run that does not end is among them.
func (s Statement) Holding(all []Holding) Statement {
	s.Held = slices.SortedFunc(slices.Values(all), func(a, b Holding) int { return a.Job.Compare(b.Job) })
	for len(s.Held) > 0 && s.heldLen() > heldRoom {
		s.Held = s.Held[:len(s.Held)-1]
	}
	s.More = len(s.Held) < len(all)
	return s.fitted()
}

func (s Statement) heldLen() int {
	text, _ := json.Marshal(s.wire().Held) // numbers and words
	return len(text)
}

// Holds reports whether the node may have tags of a run.
func (s Statement) Holds(job journal.ID) bool {
	return s.More || slices.ContainsFunc(s.Held, func(h Holding) bool { return h.Job == job })
}

// wire is the form in a letter. All nodes' comments travel with every answer of slurmctld
// about nodes, so it is short.
type wire struct {
	Node     string             `json:"node"`
	Boot     string             `json:"boot"`
	Released string             `json:"released"`       // as JOB.RESTART, with blanks between
	Held     map[string]Holding `json:"held,omitempty"` // by JOB.RESTART
	More     bool               `json:"more,omitempty"`
}

func (s Statement) wire() wire {
	w := wire{Node: s.Node, Boot: s.Boot, More: s.More, Held: map[string]Holding{}}
	var ids []string
	for _, id := range s.Released {
		ids = append(ids, id.String())
	}
	w.Released = strings.Join(ids, " ")
	for _, h := range s.Held {
		w.Held[h.Job.String()] = h
	}
	return w
}

// MarshalJSON writes the jobs as one string.
func (s Statement) MarshalJSON() ([]byte, error) { return json.Marshal(s.wire()) }

// UnmarshalJSON reads what MarshalJSON writes.
func (s *Statement) UnmarshalJSON(text []byte) error {
	var w wire
	if err := json.Unmarshal(text, &w); err != nil {
		return err
	}
	read := Statement{Node: w.Node, Boot: w.Boot, More: w.More}
	var err error
	if read.Released, err = parseIDs(strings.Fields(w.Released)); err != nil {
		return err
	}
	held, err := parseIDs(slices.Collect(maps.Keys(w.Held)))
	if err != nil {
		return err
	}
	for _, id := range slices.SortedFunc(slices.Values(held), journal.ID.Compare) {
		h := w.Held[id.String()]
		h.Job = id
		read.Held = append(read.Held, h)
	}
	*s = read
	return nil
}

func parseIDs(words []string) (ids []journal.ID, err error) {
	for _, word := range words {
		id, err := journal.ParseID(word)
		if err != nil {
			return nil, fmt.Errorf("a node's statement: %w", err)
		}
		ids = append(ids, id)
	}
	return ids, nil
}
