// Package pmixtest has what tests of slurmv-pmix need: the program, a rank that speaks PMIx, and
// Slurm's PMI.
package pmixtest

import (
	"bufio"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/slurm-v/slurm-v/internal/filetest"
)

// Build makes slurmv-pmix as the product has it, and a rank, in a directory that every user may
// pass. Root is the repository, seen from the test's directory.
func Build(t *testing.T, root string) (server, client string) {
	t.Helper()
	dir := filetest.PassableDir(t)
	client = filepath.Join(dir, "client")
	source := filepath.Join(root, "internal/pmix/testdata/client.c")
	sources, _ := filepath.Glob(filepath.Join(root, "internal/pmix/*.[ch]"))
	filetest.Build(t, []string{source}, []string{"sh", "-c", "cc -o " + client + " " + source + " $(pkg-config --cflags --libs pmix)"})
	return filetest.Make(t, root, dir, "slurmv-pmix", sources...), client
}

// A Slurm is a PMI server of dialect 1.
type Slurm struct {
	Ranks   int
	Mapping string // of ranks to VMs
	Garbled bool   // answers make no sense

	mu      sync.Mutex
	values  map[string]string
	waiting []io.Writer
	heard   []string
}

// Joins and Leaves are what the relay is told when a program has connected, and when it has
// finalized.
const Joins, Leaves = "cmd=slurmv-pmix joined=1", "cmd=slurmv-pmix joined=0"

// Serve serves a rank until its connection ends.
func (s *Slurm) Serve(rank int, conn io.ReadWriter) {
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		s.answer(rank, conn, lines.Text())
	}
}

// Heard returns, in order, the commands that are not PMI's, each with its rank: "1: cmd=abort".
func (s *Slurm) Heard() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(slices.Values(s.heard))
}

// Keys returns the keys of what ranks have put.
func (s *Slurm) Keys() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Sorted(maps.Keys(s.values))
}

// Waiting returns how many ranks are in a barrier.
func (s *Slurm) Waiting() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.waiting)
}

func (s *Slurm) answer(rank int, to io.Writer, line string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fields := map[string]string{}
	for word := range strings.FieldsSeq(line) {
		name, value, _ := strings.Cut(word, "=")
		fields[name] = value
	}
	switch {
	case s.Garbled:
		say(to, "cmd=what")
	case fields["cmd"] == "init":
		say(to, "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0")
	case fields["cmd"] == "get_my_kvsname":
		say(to, "cmd=my_kvsname kvsname=7.1")
	case fields["cmd"] == "put":
		s.put(fields["key"], fields["value"])
		say(to, "cmd=put_result rc=0")
	case fields["cmd"] == "get":
		s.get(to, fields["key"])
	case fields["cmd"] == "barrier_in":
		s.enter(to)
	default:
		s.heard = append(s.heard, fmt.Sprint(rank, ": ", line))
		if line == Leaves {
			say(to, "cmd=slurmv-pmix rc=0")
		}
	}
}

func say(to io.Writer, line string) { _, _ = io.WriteString(to, line+"\n") }

func (s *Slurm) put(key, value string) {
	if s.values == nil {
		s.values = map[string]string{}
	}
	s.values[key] = value
}

func (s *Slurm) get(to io.Writer, key string) {
	value, found := s.values[key]
	switch {
	case key == "PMI_process_mapping":
		say(to, "cmd=get_result rc=0 value="+s.Mapping)
	case !found:
		say(to, "cmd=get_result rc=1")
	default:
		say(to, "cmd=get_result rc=0 value="+value)
	}
}

func (s *Slurm) enter(rank io.Writer) {
	if s.waiting = append(s.waiting, rank); len(s.waiting) < s.Ranks {
		return
	}
	for _, w := range s.waiting {
		say(w, "cmd=barrier_out rc=0")
	}
	s.waiting = nil
}
