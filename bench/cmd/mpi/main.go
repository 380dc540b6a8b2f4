// Program mpi makes a report from the output of bench/cmd/mpi/job.sh; see bench/mpi.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// The libraries, and the ways between their ranks, as job.sh names them.
var (
	libraries = []string{"MPICH", "Open MPI"}
	ways      = []string{"shared memory", "one VM", "no VM", "TCP"}
)

// A series has the time of a message in µs, by its size in bytes.
type series map[int]float64

// results has the series by "LIBRARY: WAY".
type results map[string]series

func main() {
	out := flag.String("out", "docs", "`directory` for mpi-messages.md")
	flag.Parse()
	if err := run(os.Stdin, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench/mpi:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out string) error {
	found, err := read(in)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "mpi-messages.md"), []byte(report(found)), 0o644)
}

// read takes the lines that consist of a size and a time; programs may print others, too.
func read(in io.Reader) (results, error) {
	found, part := results{}, ""
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		if name, begins := strings.CutPrefix(lines.Text(), "== "); begins {
			part = name
			found[part] = series{}
			continue
		}
		var bytes int
		var micros float64
		if n, _ := fmt.Sscan(lines.Text(), &bytes, &micros); n == 2 && part != "" {
			found[part][bytes] = micros
		}
	}
	if err := lines.Err(); err != nil {
		return nil, err
	}
	return found, found.check()
}

// check returns an error if a part is missing: its program has failed then.
func (r results) check() error {
	for _, library := range libraries {
		for _, way := range ways {
			if _, measured := r.of(library, way)[smallest]; !measured {
				return fmt.Errorf("no measurement of %s by %s: did the job fail?", library, way)
			}
		}
	}
	return nil
}

func (r results) of(library, way string) series { return r[library+": "+way] }
