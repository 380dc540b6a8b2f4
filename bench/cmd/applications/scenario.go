package main

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"sync"
)

// An app is a program of the examples, with the arguments for its measured size.
type app struct{ name, args string }

// Those of SACJ are small: eight emulated ranks that talk by TCP take long.
var (
	bfs      = app{"bfs", "-s 17 -k 4"}
	cg       = app{"cg", "-n 16384 -i 4"}
	smallBFS = app{"bfs", "-s 13 -k 2"}
	smallCG  = app{"cg", "-n 4096 -i 1"}
)

func (a app) command() string { return a.name + " " + a.args }

// A launcher starts MPI ranks, with the options of srun.
type launcher string

const (
	toVMs   launcher = "slurm-v-run -Q"
	sharing launcher = "slurm-v-run -Q --mpi-shm=on" // fails if the ranks do not share memory after all
	byTCP   launcher = "slurm-v-run -Q --mpi-shm=off"
	toNodes launcher = "srun -Q --overlap --mpi=pmi2"
)

// command starts ranks of an app, as many on each node.
func (l launcher) command(a app, nodes, ranks int) string {
	return fmt.Sprintf("%s -n %d --ntasks-per-node=%d ./%s", l, nodes*ranks, ranks, a.command())
}

// A batch is the apps that one session runs at the same time.
type batch struct {
	session *session
	script  string
	apps    []app
}

func newBatch(s *session, l launcher, ranks int, apps ...app) batch {
	var script, wait strings.Builder
	for i, a := range apps {
		fmt.Fprintf(&script, "%s & run%d=$!\n", l.command(a, s.nodes, ranks), i)
		fmt.Fprintf(&wait, " && wait $run%d", i)
	}
	return batch{s, script.String() + "true" + wait.String(), apps}
}

// A step is the batches that run at the same time.
type step []batch

// A side is one way to run a scenario; its steps follow one another.
type side struct {
	name  string
	steps []step
}

// The sides of a comparison, by their names in the record of the figures.
const (
	shared = "VMs, shared memory"
	apart  = "VMs, TCP"
	big    = "one big VM per node"
	bare   = "bare nodes"
)

type scenario struct {
	name  string
	sides []side
}

// inJob returns the scenarios of one job with two VMs on a node: EASJ and EACJ.
func inJob(job, reference *session, withBare bool) []scenario {
	easj := func(name string, s *session, l launcher) side {
		return side{name, []step{{newBatch(s, l, 2, bfs)}, {newBatch(s, l, 2, cg)}}}
	}
	eacj := func(name string, s *session, l launcher) side {
		return side{name, []step{{newBatch(s, l, 2, bfs, cg)}}}
	}
	sides := func(of func(string, *session, launcher) side) []side {
		all := []side{of(shared, job, sharing), of(apart, job, byTCP), of(big, reference, toVMs)}
		if withBare {
			all = append(all, of(bare, job, toNodes))
		}
		return all
	}
	return []scenario{{"EASJ", sides(easj)}, {"EACJ", sides(eacj)}}
}

// acrossJobs returns SACJ: four jobs with one VM on each node, side by side.
func acrossJobs(jobs []*session, reference *session, withBare bool) scenario {
	apps := []app{smallBFS, smallCG, smallBFS, smallCG}
	sacj := func(name string, l launcher) side {
		var at step
		for i, s := range jobs {
			at = append(at, newBatch(s, l, 1, apps[i]))
		}
		return side{name, []step{at}}
	}
	s := scenario{"SACJ", []side{sacj(apart, toVMs), {big, []step{{newBatch(reference, toVMs, 1, apps...)}}}}}
	if withBare {
		s.sides = append(s.sides, sacj(bare, toNodes))
	}
	return s
}

// A sample is the time of one app in one run.
type sample struct {
	app     string
	seconds float64
}

var verified = regexp.MustCompile(`(?m)^(bfs|cg): .*? in (\S+) s, .*: verified$`)

// do runs a batch. If an app has not verified its result, that is an error.
func (b batch) do() ([]sample, error) {
	out, err := b.session.run(b.script)
	if err != nil {
		return nil, err
	}
	var samples []sample
	for _, m := range verified.FindAllStringSubmatch(out, -1) {
		seconds, err := strconv.ParseFloat(m[2], 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w in:\n%s", b.session.name, err, out)
		}
		samples = append(samples, sample{m[1], seconds})
	}
	if len(samples) != len(b.apps) {
		return nil, fmt.Errorf("%s: %d of %d results are verified:\n%s", b.session.name, len(samples), len(b.apps), out)
	}
	return samples, nil
}

// do runs the batches of a step, all at once.
func (s step) do() (samples []sample, err error) {
	var all sync.WaitGroup
	found, failed := make([][]sample, len(s)), make([]error, len(s))
	for i, b := range s {
		all.Go(func() { found[i], failed[i] = b.do() })
	}
	all.Wait()
	for i := range s {
		samples = append(samples, found[i]...)
	}
	return samples, errors.Join(failed...)
}
