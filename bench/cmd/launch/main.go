// Program launch measures how fast VMs start; see bench/launch.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"github.com/slurm-v/slurm-v/internal/durable"
)

// A part measures the answer to one question.
type part struct {
	name, about string
	measure     func(context.Context, *bench, *results) error
}

var parts = []part{
	{"launch", "one VM by Slurm-V, and by bare QEMU", measureLaunch},
	{"image", "ways of getting at an image of 2.2 GB (the paper's Figures 5 and 6)", measureFigures},
	{"designs", "1 to 4 VMs by tasks, by libvirt and by OpenStack (the paper's three designs)", measureDesigns},
	{"nodes", "1 to 32 VMs on 1 to 4 nodes (Figures 7 and 8)", measureScale},
	{"jobs", "64 jobs at once that want an image which the node does not have", measureJobs},
	{"clones", "whether 32 VMs from a template are 32 machines", measureClones},
	{"control", "many VMs and nodes without guests (bench/scale)", measureControl},
	{"waiting", "16 guests on a node whose boot mostly waits; takes half an hour", measureWaiting},
}

// A bench is the state that all parts share.
type bench struct {
	quick bool
	full  bool
	rest  bool         // like full, but only what has no result yet
	save  func() error // writes the results so far
	out   string       // output directory
	began time.Time
}

// rounds returns how often to measure.
func (b *bench) rounds(n int) int {
	if b.quick {
		return 1
	}
	return n
}

// say reports progress.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench/launch: %4.0f s: %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}

func main() {
	if len(os.Args) > 1 && os.Args[1] == "bare" {
		exit(runBare(os.Args[2]))
	}
	b := &bench{began: time.Now()}
	flag.BoolVar(&b.quick, "quick", false, "measure everything once, and less of it")
	flag.BoolVar(&b.full, "full", false, "measure every number of VMs on every number of nodes in every way")
	flag.BoolVar(&b.rest, "rest", false, "of what --full measures, measure what has no result yet, once")
	out := flag.String("out", "docs", "`directory` for benchmarks.md and what belongs to it")
	report := flag.Bool("report", false, "measure nothing, and write the report and its figures from benchmarks.json")
	flag.Usage = usage
	flag.Parse()
	if *report {
		exit(rewrite(*out))
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := b.run(ctx, *out, flag.Args())
	stop()
	exit(err)
}

func exit(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench/launch:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func usage() {
	fmt.Fprintln(os.Stderr, "usage: bench/launch [--quick | --full | --rest] [--out docs] [PART...]\n       bench/launch --report [--out docs]\n\nThe parts, all if none is named:")
	for _, p := range parts {
		fmt.Fprintf(os.Stderr, "    %-8s  %s\n", p.name, p.about)
	}
	flag.PrintDefaults()
}

// run measures the parts and writes each result as soon as it is known.
func (b *bench) run(ctx context.Context, out string, names []string) error {
	for _, name := range names {
		if !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			return fmt.Errorf("there is no part %q; see bench/launch --help", name)
		}
	}
	r, err := readResults(out)
	if err != nil {
		return err
	}
	alone, err := lock()
	if err != nil {
		return err
	}
	defer alone.Close()
	defer down()
	b.out, b.save = out, func() error { return r.write(out) }
	for _, p := range parts {
		if len(names) > 0 && !slices.Contains(names, p.name) {
			continue
		}
		b.say("%s: %s", p.name, p.about)
		if err := p.measure(ctx, b, r); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		r.note(p.name, b.quick)
		if err := r.write(out); err != nil {
			return err
		}
	}
	b.say("done")
	return nil
}

// lock keeps a second bench/launch off the machine: it would replace the first one's
// cluster, and spoil both measurements.
func lock() (*durable.Held, error) {
	path := filepath.Join(os.TempDir(), "slurmv-bench.lock")
	held, err := durable.TryLock(path, os.O_CREATE)
	if errors.Is(err, durable.ErrLocked) {
		err = fmt.Errorf("another bench/launch is running; wait for its end (lock %s)", path)
	}
	return held, err
}
