package main

import (
	"fmt"
	"image/color"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"

	"github.com/slurm-v/slurm-v/bench/draw"
)

// A style is how a curve looks. Curves differ in colour and in dashes.
type style struct {
	colour color.Color
	dashes []vg.Length
}

var (
	dashed = []vg.Length{vg.Points(6), vg.Points(2)}
	dotted = []vg.Length{vg.Points(2), vg.Points(2)}
	kinds  = map[string]style{"video": {draw.Blue, nil}, "AI": {draw.Vermilion, dashed}, "file": {draw.Green, dotted}}
)

// drawRates draws one panel per result, below each other.
func drawRates(results []result, path string) error {
	const width, height = 18 * vg.Centimeter, 8 * vg.Centimeter
	var panels []*plot.Plot
	for _, r := range results {
		p, err := ratesPanel(r)
		if err != nil {
			return err
		}
		panels = append(panels, p)
	}
	return draw.Save(path, width, height*vg.Length(len(results)), 1, panels...)
}

func ratesPanel(r result) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = r.title()
	p.X.Label.Text, p.Y.Label.Text = "iteration", "Mb/s"
	most := r.most()
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, float64(r.iterations)*1.15, 0, most*1.1 // room for the legend on the right
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks(float64(r.iterations), 8), ticks(most, 5)
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	for i, s := range r.senders {
		line, err := add(p, r.points(i), kinds[s.kind], vgdraw.CircleGlyph{})
		if err != nil {
			return nil, err
		}
		if i < len(kinds) { // one of each kind
			p.Legend.Add(s.kind, line)
		}
	}
	return p, nil
}

func add(p *plot.Plot, at plotter.XYs, s style, glyph vgdraw.GlyphDrawer) (*plotter.Line, error) {
	line, points, err := plotter.NewLinePoints(at)
	if err != nil {
		return nil, err
	}
	line.Color, line.Dashes, line.Width = s.colour, s.dashes, vg.Points(1.5)
	points.Color, points.Radius, points.Shape = s.colour, vg.Points(1.5), glyph
	p.Add(line, points)
	return line, nil
}

// title tells the minima of the kinds.
func (r result) title() string {
	if !r.minima {
		return "without minima"
	}
	m := r.senders
	return fmt.Sprintf("with minima of %d, %d and %d %%", m[0].percent, m[1].percent, m[2].percent)
}

// most returns the most that a sender should get, in Mb/s.
func (r result) most() (most float64) {
	for i := range r.iterations {
		for _, rate := range r.expected(i + 1) {
			most = max(most, rate)
		}
	}
	return most
}

// ticks divides an axis, up to last, into parts.
func ticks(last float64, parts int) (marks plot.ConstantTicks) {
	for i := range parts + 1 {
		at := last * float64(i) / float64(parts)
		marks = append(marks, plot.Tick{Value: at, Label: fmt.Sprint(at)})
	}
	return marks
}

// points returns the samples from one before the sender starts to one after it stops.
func (r result) points(sender int) (points plotter.XYs) {
	s := r.senders[sender]
	for i := max(1, s.first-1); i <= min(r.iterations, s.last+1); i++ {
		points = append(points, plotter.XY{X: float64(i), Y: r.samples[i-1][sender]})
	}
	return points
}

// looks are those of the trials.
var looks = []style{{draw.Grey, nil}, {draw.Sky, dashed}, {draw.Orange, nil}, {draw.Blue, dashed}, {draw.Vermilion, dotted}}

// drawLatency draws the medians beside the 99th percentiles.
func drawLatency(results []latency, path string) error {
	var panels []*plot.Plot
	for _, percent := range []float64{50, 99} {
		p, err := latencyPanel(results, percent)
		if err != nil {
			return err
		}
		panels = append(panels, p)
	}
	return draw.Save(path, 26*vg.Centimeter, 11*vg.Centimeter, 2, panels...)
}

func latencyPanel(results []latency, percent float64) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = "median"
	if percent != 50 {
		p.Title.Text = fmt.Sprintf("%gth percentile", percent)
	}
	p.X.Label.Text, p.Y.Label.Text = "message, bytes", "round trip, ms"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.Y.Min, p.Y.Max = 0.01, 1e6 // room for the legend
	p.X.Tick.Marker, p.Y.Tick.Marker = sizeTicks(), powers(0.01, 1e3)
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	for i, l := range results {
		line, err := add(p, l.points(percent), looks[i], vgdraw.CircleGlyph{})
		if err != nil {
			return nil, err
		}
		p.Legend.Add(l.name, line)
	}
	return p, nil
}

// points returns a percentile by size. An axis of logarithms has no zero.
func (l latency) points(percent float64) (points plotter.XYs) {
	for size, bytes := range sizes {
		points = append(points, plotter.XY{X: float64(bytes), Y: max(l.at(size, percent).middle, 0.01)})
	}
	return points
}

func sizeTicks() (marks plot.ConstantTicks) {
	for _, bytes := range sizes {
		marks = append(marks, plot.Tick{Value: float64(bytes), Label: fmt.Sprint(bytes)})
	}
	return marks
}

func powers(least, most float64) (marks plot.ConstantTicks) {
	for v := least; v <= most*1.01; v *= 10 {
		marks = append(marks, plot.Tick{Value: v, Label: fmt.Sprintf("%g", math.Pow(10, math.Round(math.Log10(v))))})
	}
	return marks
}
