package main

import "context"

// A scalePoint is a number of VMs spread evenly over nodes, started in one way.
type scalePoint struct {
	VMs    int      `json:"vms"`
	Nodes  int      `json:"nodes"`
	Start  string   `json:"start"` // cold or warm
	Serial bool     `json:"serial"`
	Rounds []launch `json:"rounds"`
}

// seconds is the median of the rounds.
func (p scalePoint) seconds() float64 {
	return medianOf(p.Rounds, func(l launch) float64 { return l.Seconds })
}

// floor is the median of what the machine's CPUs needed.
func (p scalePoint) floor() float64 { return medianOf(p.Rounds, launch.floor) }

func medianOf(rounds []launch, value func(launch) float64) float64 {
	values := make([]float64, len(rounds))
	for i, l := range rounds {
		values[i] = value(l)
	}
	return median(values)
}

// scalePoints are measured in this order. A warm start is repeated, and most often
// where it is to be judged; VMs that boot one after another on an emulator take
// minutes, which repeating does not make truer.
func scalePoints(b *bench) (points []scalePoint, rounds []int) {
	add := func(start string, serial bool, times, nodes int, counts ...int) {
		for _, vms := range counts {
			points = append(points, scalePoint{VMs: vms, Nodes: nodes, Start: start, Serial: serial})
			rounds = append(rounds, b.rounds(times))
		}
	}
	add("warm", false, 5, 4, 32)
	if b.quick {
		add("cold", false, 1, 4, 8)
		add("cold", true, 1, 4, 8)
		return points, rounds
	}
	for _, nodes := range []int{1, 2, 4} {
		counts := []int{1, 2, 4, 8, 16, 32}
		for counts[0] < nodes {
			counts = counts[1:]
		}
		if nodes == 4 {
			add("warm", false, 1, nodes, counts[:len(counts)-1]...)
		} else {
			add("warm", false, 1, nodes, counts...)
		}
		add("warm", true, 1, nodes, counts...)
	}
	add("cold", false, 1, 1, 1, 2, 4, 8)
	add("cold", true, 1, 1, 2, 4, 8)
	add("cold", false, 1, 4, 4, 8, 16, 32)
	add("cold", true, 1, 4, 4, 8, 16, 32)
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
	points, rounds := scalePoints(b)
	for i := range points {
		if err := c.measurePoint(ctx, b, &points[i], rounds[i]); err != nil {
			return err
		}
	}
	r.Scale = points
	return nil
}

// makeTemplates has each node save what warm starts are restored from.
func (c *cluster) makeTemplates(ctx context.Context, b *bench, nodes int) error {
	l, err := c.launch(ctx, job{nodes: nodes, vms: 1, options: []string{"--vm-start=warm"}})
	if err == nil {
		b.say("templates are on the nodes after a start of %.1f s", l.Seconds)
	}
	return err
}

func (c *cluster) measurePoint(ctx context.Context, b *bench, p *scalePoint, rounds int) error {
	more := ""
	if p.Serial {
		more = "[measure]\nserial = true\n"
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

// way is how the VMs were started.
func (p scalePoint) way() string {
	if p.Serial {
		return p.Start + ", one after another"
	}
	return p.Start + ", in parallel"
}
