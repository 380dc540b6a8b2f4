// Program ivshmem makes a report from the output of examples/ivshmem-pingpong.c; see
// bench/ivshmem.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// A result is the measurement for messages of one size.
type result struct {
	bytes    int
	shm, tcp float64 // half of a round trip, µs
}

// rate returns the bandwidth in MB/s if one message takes micros.
func (r result) rate(micros float64) float64 { return float64(r.bytes) / micros }

func main() {
	out := flag.String("out", "docs", "`directory` for ivshmem.md and ivshmem.svg")
	flag.Parse()
	if err := run(os.Stdin, *out); err != nil {
		fmt.Fprintln(os.Stderr, "bench/ivshmem:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out string) error {
	results, err := read(in)
	if err != nil {
		return err
	}
	if err := drawTo(results, filepath.Join(out, "ivshmem.svg")); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(out, "ivshmem.md"), []byte(report(results)), 0o644)
}

// read takes the lines that consist of numbers; the job's output has other lines, too.
func read(in io.Reader) (results []result, err error) {
	lines := bufio.NewScanner(in)
	for lines.Scan() {
		var r result
		var rate float64 // ignored: it is rounded to 0 for the smallest messages
		n, _ := fmt.Sscan(lines.Text(), &r.bytes, &r.shm, &rate, &r.tcp, &rate)
		if n == 5 {
			results = append(results, r)
		}
	}
	if len(results) == 0 && lines.Err() == nil {
		return nil, errors.New("no measurements: did the job fail?")
	}
	return results, lines.Err()
}
