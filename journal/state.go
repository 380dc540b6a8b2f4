package journal

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	jobsDir  = "jobs"
	fileName = "journal"
)

// An ID identifies a job on a node. A requeued job keeps its number but has another
// restart count, and shares nothing with its previous run.
type ID struct{ Job, Restart uint32 }

// String returns "JOB.RESTART", which is also the name of the job's directory.
func (id ID) String() string { return fmt.Sprintf("%d.%d", id.Job, id.Restart) }

// Compare is negative if id comes before other, by job and then by restart.
func (id ID) Compare(other ID) int {
	return cmp.Or(cmp.Compare(id.Job, other.Job), cmp.Compare(id.Restart, other.Restart))
}

// ParseID reads what [ID.String] writes, and nothing else: "007.0" is no ID.
func ParseID(text string) (ID, error) {
	job, restart, _ := strings.Cut(text, ".")
	j, err1 := strconv.ParseUint(job, 10, 32)
	r, err2 := strconv.ParseUint(restart, 10, 32)
	id := ID{Job: uint32(j), Restart: uint32(r)}
	if err1 != nil || err2 != nil || id.String() != text {
		return ID{}, fmt.Errorf("%q is not JOB.RESTART, such as 4217.0", text)
	}
	return id, nil
}

// Dir returns the directory of a job below the node's state directory.
func Dir(state string, id ID) string { return filepath.Join(state, jobsDir, id.String()) }

// List returns the jobs that have a directory below state, with or without a journal in
// it, ordered by number. A missing state directory means that there are none.
func List(state string) ([]ID, error) {
	entries, err := os.ReadDir(filepath.Join(state, jobsDir))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list jobs: %w", err)
	}
	var ids []ID
	for _, e := range entries {
		if id, err := ParseID(e.Name()); err == nil && e.IsDir() {
			ids = append(ids, id)
		}
	}
	slices.SortFunc(ids, ID.Compare)
	return ids, nil
}

// A State is the content of a journal at one moment.
type State struct {
	Header Header
	Holder Holder
	Held   []Record
}

// Read reads a journal without its lock. With a [*CorruptError] it also returns what
// precedes the damaged line.
func Read(state string, id ID) (State, error) {
	path := filepath.Join(Dir(state, id), fileName)
	data, err := os.ReadFile(path)
	if err != nil {
		return State{}, fmt.Errorf("read journal of job %s: %w", id, err)
	}
	c, err := parse(data)
	if err != nil {
		err = fmt.Errorf("read journal of job %s: %w", id, named(err, path))
	}
	return State{Header: c.header, Holder: c.holder, Held: c.held}, err
}

// Holds reports whether a job of the node holds the resource, or may.
func Holds(state, kind, name string) (bool, error) {
	ids, err := List(state)
	if err != nil {
		return false, err
	}
	for _, id := range ids {
		s, err := Read(state, id)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
		if slices.ContainsFunc(s.Held, func(r Record) bool { return r.Kind == kind && r.Name == name }) {
			return true, nil
		}
	}
	return false, nil
}
