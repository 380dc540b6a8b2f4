package main

import (
	"fmt"
	"image/color"
	"math"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"

	"github.com/slurm-v/slurm-v/bench/draw"
)

// colours are the colours of the curves, in order.
var colours = []color.Color{draw.Orange, draw.Sky, draw.Green, draw.Vermilion, draw.Blue, draw.Purple, draw.Grey}

// draw draws the pictures for which there are results.
func (r *results) draw(out string) error {
	if len(r.Figures) > 0 {
		p, err := drawFigures(r.Figures)
		if err != nil {
			return err
		}
		if err := draw.Save(filepath.Join(out, "benchmarks-image.svg"), 24*vg.Centimeter, 10*vg.Centimeter, 1, p); err != nil {
			return err
		}
	}
	var panels []*plot.Plot
	for _, start := range []string{"cold", "warm"} {
		if !slices.ContainsFunc(r.Scale, func(p scalePoint) bool { return p.Start == start }) {
			continue // not measured yet, and a logarithmic axis cannot be empty
		}
		p, err := drawScale(r.Scale, start)
		if err != nil {
			return err
		}
		panels = append(panels, p)
	}
	if panels == nil {
		return nil
	}
	return draw.Save(filepath.Join(out, "benchmarks-nodes.svg"), 26*vg.Centimeter, 11*vg.Centimeter, 2, panels...)
}

// drawFigures stacks the stages of each way, and the rest of the time above them.
func drawFigures(figures []figure) (*plot.Plot, error) {
	p := plot.New()
	p.Y.Label.Text, p.Y.Min = "seconds", 0
	p.Legend.Top, p.Legend.Padding = true, vg.Millimeter
	p.Legend.XOffs, p.Legend.YOffs = -vg.Millimeter, -vg.Millimeter
	names := make([]string, len(figures))
	rest := make(plotter.Values, len(figures))
	for i, f := range figures {
		names[i], rest[i] = f.Way, f.seconds()
	}
	var below *plotter.BarChart
	add := func(name string, values plotter.Values, colour color.Color) error {
		bar, err := plotter.NewBarChart(values, 1.5*vg.Centimeter)
		if err != nil {
			return err
		}
		bar.Color, bar.LineStyle.Width = colour, 0
		if below != nil {
			bar.StackOn(below)
		}
		below = bar
		p.Add(bar)
		p.Legend.Add(name, bar)
		return nil
	}
	for n, stage := range figureStages {
		values := make(plotter.Values, len(figures))
		for i, f := range figures {
			values[i] = f.stage(stage)
			rest[i] -= values[i]
		}
		if err := add(stage, values, colours[n%len(colours)]); err != nil {
			return nil, err
		}
	}
	for i := range rest {
		rest[i] = max(0, rest[i]) // overlapping stages add up to more than the time
	}
	if err := add("others", rest, colours[len(colours)-1]); err != nil {
		return nil, err
	}
	p.NominalX(names...)
	p.Y.Tick.Marker = everyFive(p.Y.Max)
	return p, nil
}

// drawScale draws the times of one kind of start over the number of VMs: a line for each
// number of nodes and way, and the CPU floor on all nodes.
func drawScale(points []scalePoint, start string) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = start, "VMs", "seconds"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker = plot.ConstantTicks(powersOfTwo(32))
	p.Legend.Top, p.Legend.Left, p.Legend.Padding = true, true, vg.Millimeter
	p.Add(plotter.NewGrid())
	most, least := 1.0, math.Inf(1)
	add := func(name string, colour color.Color, dashes []vg.Length, wanted func(scalePoint) bool, value func(scalePoint) float64) error {
		var line plotter.XYs
		for _, point := range points {
			if point.Start == start && wanted(point) {
				line = append(line, plotter.XY{X: float64(point.VMs), Y: value(point)})
				most, least = max(most, value(point)), min(least, value(point))
			}
		}
		if len(line) == 0 {
			return nil
		}
		drawn, marks, err := plotter.NewLinePoints(inOrder(line))
		if err != nil {
			return err
		}
		drawn.Color, drawn.Width, drawn.Dashes = colour, vg.Points(1.5), dashes
		marks.Color, marks.Radius, marks.Shape = colour, vg.Points(2), vgdraw.CircleGlyph{}
		p.Add(drawn, marks)
		p.Legend.Add(name, drawn, marks)
		return nil
	}
	for i, nodes := range []int{1, 2, 4} {
		for _, serial := range []bool{true, false} {
			way, dashes := "parallel", []vg.Length(nil)
			if serial {
				way, dashes = "serial", []vg.Length{vg.Points(5), vg.Points(3)}
			}
			wanted := func(q scalePoint) bool { return q.Nodes == nodes && q.Serial == serial }
			if err := add(fmt.Sprintf("nodes: %d, %s", nodes, way), colours[i], dashes, wanted, scalePoint.seconds); err != nil {
				return nil, err
			}
		}
	}
	onAll := func(q scalePoint) bool { return q.Nodes == 4 && !q.Serial }
	if err := add("nodes: 4, CPU floor", color.Black, []vg.Length{vg.Points(1), vg.Points(2)}, onAll, scalePoint.floor); err != nil {
		return nil, err
	}
	p.X.Min, p.X.Max = 0.9, 36
	p.Y.Min, p.Y.Max = least/1.3, most*5 // room for the legend above
	p.Y.Tick.Marker = oneTwoFive(p.Y.Min, p.Y.Max)
	return p, nil
}

func inOrder(points plotter.XYs) plotter.XYs {
	for i := range points {
		for j := i; j > 0 && points[j].X < points[j-1].X; j-- {
			points[j], points[j-1] = points[j-1], points[j]
		}
	}
	return points
}

func everyFive(most float64) (marks plot.ConstantTicks) {
	for v := 0.0; v <= most; v += 5 {
		marks = append(marks, plot.Tick{Value: v, Label: fmt.Sprint(v)})
	}
	return marks
}

// oneTwoFive returns the ticks 1, 2, 5, 10, 20 ... of a logarithmic axis.
func oneTwoFive(least, most float64) (marks plot.ConstantTicks) {
	for decade := 0.01; decade <= most; decade *= 10 {
		for _, digit := range []float64{1, 2, 5} {
			if v := decade * digit; v >= least && v <= most {
				marks = append(marks, plot.Tick{Value: v, Label: fmt.Sprintf("%.3g", v)})
			}
		}
	}
	return marks
}

func powersOfTwo(most int) (marks []plot.Tick) {
	for n := 1; n <= most; n *= 2 {
		marks = append(marks, plot.Tick{Value: float64(n), Label: fmt.Sprint(n)})
	}
	return marks
}
