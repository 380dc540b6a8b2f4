package letter

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/journal"
)

// MaxReleased is how many jobs a [Statement] names.
const MaxReleased = 64

// A Statement is what a node says to the controller: it has undone these jobs' tags, and
// read back that they are gone.
type Statement struct {
	Node     string       // name in Slurm
	Boot     string       // the boot id of the node's kernel when it said so
	Released []journal.ID // the newest last, at most [MaxReleased]
}

// With returns the statement with this release as the newest. Releases before the last
// [MaxReleased] are forgotten.
func (s Statement) With(job journal.ID) Statement {
	s = s.Without(job)
	s.Released = append(s.Released, job)
	s.Released = s.Released[max(0, len(s.Released)-MaxReleased):]
	return s
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
