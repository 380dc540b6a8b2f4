// Command prolog serves bench/prolog: it fills a ledger with reservations of jobs that run, and
// sums up the times that the script has measured.
package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/ledger"
	"github.com/slurm-v/slurm-v/journal"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "prolog:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 3 && args[0] == "fill":
		n, err := strconv.Atoi(args[2])
		return errors.Join(err, fill(args[1], n))
	case len(args) == 1 && args[0] == "sum":
		return sum(os.Stdin, os.Stdout)
	}
	return errors.New("usage: prolog fill LEDGER JOBS | prolog sum")
}

// firstJob is far above the numbers of the cluster's own jobs.
const firstJob = 1_000_000

// pool is what the script writes into slurmv.toml.
var pool = fabric.Pool{Name: "vni", Kind: fabric.VNI, Tags: []fabric.Range{{First: 1024, Last: 65535}}}

// fill reserves a VNI for each of n jobs.
func fill(path string, n int) error {
	l, err := ledger.Open(context.Background(), path)
	if err != nil {
		return err
	}
	for i := range n {
		q := ledger.Request{
			Reservation: fabric.Reservation{Cluster: "c", Job: journal.ID{Job: uint32(firstJob + i)}, UID: 1000},
			Nodes:       []string{"n1", "n2"},
			Wants:       []ledger.Want{{Pool: pool, Count: 1}},
		}
		if _, err = l.Reserve(q, ledger.Options{}, time.Now()); err != nil {
			break
		}
	}
	return errors.Join(err, l.Close())
}

// sum prints quantiles of times in seconds, one a line, as milliseconds.
func sum(in io.Reader, out io.Writer) error {
	var times []float64
	for lines := bufio.NewScanner(in); lines.Scan(); {
		seconds, err := strconv.ParseFloat(lines.Text(), 64)
		if err != nil {
			return err
		}
		times = append(times, seconds*1000)
	}
	if len(times) == 0 {
		return errors.New("there are no times")
	}
	slices.Sort(times)
	_, err := fmt.Fprintf(out, "%d jobs: median %.1f ms, 99 of 100 below %.1f ms, longest %.1f ms\n",
		len(times), quantile(times, 0.5), quantile(times, 0.99), times[len(times)-1])
	return err
}

// quantile returns the value below which the part q of the sorted times is.
func quantile(sorted []float64, q float64) float64 {
	return sorted[min(int(q*float64(len(sorted))), len(sorted)-1)]
}
