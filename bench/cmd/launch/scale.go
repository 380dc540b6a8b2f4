package main

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/slurm-v/slurm-v/bench/stats"
)

// A scalePoint is a number of VMs, evenly spread over nodes and started in one way.
type scalePoint struct {
	VMs    int      `json:"vms"`
	Nodes  int      `json:"nodes"`
	Start  string   `json:"start"` // cold or warm
	Serial bool     `json:"serial"`
	Rounds []launch `json:"rounds"`
}

// seconds returns the median of the rounds.
func (p scalePoint) seconds() float64 {
	return medianOf(p.Rounds, func(l launch) float64 { return l.Seconds })
}

// floor returns the median CPU floor of the rounds.
func (p scalePoint) floor() float64 { return medianOf(p.Rounds, launch.floor) }

func medianOf(rounds []launch, value func(launch) float64) float64 {
	values := make([]float64, len(rounds))
	for i, l := range rounds {
		values[i] = value(l)
	}
	return stats.Median(values)
}

// A sweep starts different numbers of VMs on the same nodes in the same way.
type sweep struct {
	start  string
	serial bool
	nodes  int
	vms    []int
}

// sweeps omit points that take minutes and say little: emulated guests boot as fast one
// after another as at once, because the cores are busy anyway.
var sweeps = []sweep{
	{"warm", false, 4, []int{32, 4, 8, 16}},
	{"warm", false, 1, []int{1, 2, 4, 8, 16, 32}},
	{"warm", false, 2, []int{2, 8, 32}},
	{"warm", true, 4, []int{8, 32}},
	{"warm", true, 1, []int{2, 8, 32}},
	{"cold", false, 4, []int{4, 8, 32}},
	{"cold", false, 1, []int{1, 2, 8}},
	{"cold", true, 4, []int{8, 32}},
	{"cold", true, 1, []int{2, 8}},
}

var quickSweeps = []sweep{
	{"warm", false, 4, []int{32}},
	{"cold", false, 4, []int{8}},
	{"cold", true, 4, []int{8}},
}

// fullSweeps returns every number of VMs on every number of nodes, started in every way.
func fullSweeps() (all []sweep) {
	for _, start := range []string{"warm", "cold"} {
		for _, serial := range []bool{false, true} {
			for _, nodes := range []int{1, 2, 4} {
				counts := []int{1, 2, 4, 8, 16, 32}
				all = append(all, sweep{start, serial, nodes, counts[slices.Index(counts, nodes):]})
			}
		}
	}
	return all
}

// points returns the points to measure, and how often: most often those that have a goal.
func (b *bench) points() (points []scalePoint, rounds []int) {
	chosen := sweeps
	switch {
	case b.quick:
		chosen = quickSweeps
	case b.full, b.rest:
		chosen = fullSweeps()
	}
	for _, s := range chosen {
		for _, vms := range s.vms {
			times := 1
			if s.start == "warm" && !s.serial && s.nodes == 4 && vms == 32 {
				times = b.rounds(5)
			}
			points, rounds = append(points, scalePoint{VMs: vms, Nodes: s.nodes, Start: s.start, Serial: s.serial}), append(rounds, times)
		}
	}
	return points, rounds
}

func measureScale(ctx context.Context, b *bench, r *results) error {
	c, err := up(ctx, shape{nodes: 4, cpus: 32})
	if err != nil {
		return err
	}
	if err := c.makeTemplates(ctx, b, 4); err != nil {
		return err
	}
	points, rounds := b.points()
	if !b.rest {
		r.Scale = nil
	}
	for i := range points {
		if slices.ContainsFunc(r.Scale, points[i].like) {
			continue
		}
		if err := c.measurePoint(ctx, b, &points[i], rounds[i]); err != nil {
			return err
		}
		r.Scale = append(r.Scale, points[i])
		slices.SortFunc(r.Scale, reportOrder)
		if err := b.save(); err != nil {
			return err
		}
	}
	return nil
}

// like reports whether both points have the same VMs, started in the same way.
func (p scalePoint) like(q scalePoint) bool { return reportOrder(p, q) == 0 }

// reportOrder sorts restored VMs before booted ones, and parallel starts before serial
// ones.
func reportOrder(p, q scalePoint) int {
	serial := map[bool]int{true: 1}
	return cmp.Or(-cmp.Compare(p.Start, q.Start), serial[p.Serial]-serial[q.Serial], p.Nodes-q.Nodes, p.VMs-q.VMs)
}

// makeTemplates has each node save the template for warm starts.
func (c *cluster) makeTemplates(ctx context.Context, b *bench, nodes int) error {
	l, err := c.launch(ctx, job{nodes: nodes, vms: 1, options: []string{"--vm-start=warm"}})
	if err == nil {
		b.say("templates are on the nodes after a start of %.1f s", l.Seconds)
	}
	return err
}

func (c *cluster) measurePoint(ctx context.Context, b *bench, p *scalePoint, rounds int) error {
	more := ""
	switch {
	case p.Serial:
		more = "[measure]\nserial = true\n"
	case p.Nodes > 1:
		// A node assumes that all CPUs of the machine are its own, but here nodes share
		// them.
		more = fmt.Sprintf("[launch]\nparallel = %d\n", max(1, cpus/p.Nodes))
	}
	if err := c.configure(more); err != nil {
		return err
	}
	for range rounds {
		l, err := c.launch(ctx, job{nodes: p.Nodes, vms: p.VMs / p.Nodes, options: []string{"--vm-start=" + p.Start}})
		if err != nil {
			return err
		}
		b.say("%d VMs on %d nodes, %s: %.2f s, CPU floor %.2f s", p.VMs, p.Nodes, p.way(), l.Seconds, l.floor())
		p.Rounds = append(p.Rounds, l)
	}
	return nil
}

// way returns how the VMs were started.
func (p scalePoint) way() string {
	if p.Serial {
		return p.Start + ", one after another"
	}
	return p.Start + ", in parallel"
}
