package letter

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/journal"
)

// A Statement is what a node says to the controller: it has undone these jobs' tags, and
// read back that they are gone.
type Statement struct {
	Node     string       // name in Slurm
	Boot     string       // the boot id of the node's kernel when it said so
	Released []journal.ID // the newest last, as many as a letter has room for
}

// With returns the statement with this release as the newest. Of the oldest it forgets those
// that its letter has no room for.
func (s Statement) With(job journal.ID) Statement {
	s = s.Without(job)
	s.Released = append(s.Released, job)
	for len(s.Released) > 1 && !s.fits() {
		s.Released = s.Released[1:]
	}
	return s
}

// fits reports whether [Seal] takes the statement.
func (s Statement) fits() bool {
	plain, err := json.Marshal(s)
	return err == nil && sealedLen(plain) <= MaxText
}

// Without returns the statement without this job: one that gets tags on the node has not
// released them.
func (s Statement) Without(job journal.ID) Statement {
	s.Released = slices.DeleteFunc(slices.Clone(s.Released), func(id journal.ID) bool { return id == job })
	return s
}

// wire is the form in a letter. All nodes' comments travel with every answer of slurmctld
// about nodes, so it is short.
type wire struct {
	Node     string `json:"node"`
	Boot     string `json:"boot"`
	Released string `json:"released"` // as JOB.RESTART, with blanks between
}

// MarshalJSON writes the jobs as one string.
func (s Statement) MarshalJSON() ([]byte, error) {
	var ids []string
	for _, id := range s.Released {
		ids = append(ids, id.String())
	}
	return json.Marshal(wire{s.Node, s.Boot, strings.Join(ids, " ")})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (s *Statement) UnmarshalJSON(text []byte) error {
	var w wire
	if err := json.Unmarshal(text, &w); err != nil {
		return err
	}
	read := Statement{Node: w.Node, Boot: w.Boot}
	for word := range strings.FieldsSeq(w.Released) {
		id, err := journal.ParseID(word)
		if err != nil {
			return fmt.Errorf("a node's statement: %w", err)
		}
		read.Released = append(read.Released, id)
	}
	*s = read
	return nil
}
