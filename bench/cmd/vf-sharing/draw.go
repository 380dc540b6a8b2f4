package main

import (
	"fmt"
	"image/color"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"

	"github.com/slurm-v/slurm-v/bench/draw"
)

// Curves differ in colour and in dashes.
var (
	colours = []color.Color{draw.Blue, draw.Vermilion, draw.Green}
	dashes  = [][]vg.Length{nil, {vg.Points(6), vg.Points(2)}, {vg.Points(2), vg.Points(2)}}
)

// drawTo draws one panel per result, below each other.
func drawTo(results []result, path string) error {
	const width, height = 18 * vg.Centimeter, 8 * vg.Centimeter
	var panels []*plot.Plot
	for _, r := range results {
		p, err := panel(r)
		if err != nil {
			return err
		}
		panels = append(panels, p)
	}
	return draw.Save(path, width, height*vg.Length(len(results)), 1, panels...)
}

func panel(r result) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text = "without minima"
	if r.minima {
		p.Title.Text = "with minima of 60, 30 and 10 %"
	}
	p.X.Label.Text, p.Y.Label.Text = "iteration", "Mb/s"
	p.X.Min, p.X.Max, p.Y.Min, p.Y.Max = 0, iterations*1.15, 0, float64(r.link)*1.1 // room for the legend on the right
	p.X.Tick.Marker, p.Y.Tick.Marker = ticks(iterations, 8), ticks(float64(r.link), 5)
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	for i, s := range senders {
		line, points, err := plotter.NewLinePoints(r.points(i))
		if err != nil {
			return nil, err
		}
		line.Color, line.Dashes, line.Width = colours[i], dashes[i], vg.Points(1.5)
		points.Color, points.Radius, points.Shape = colours[i], vg.Points(1.5), vgdraw.CircleGlyph{}
		p.Add(line, points)
		p.Legend.Add(s.name, line)
	}
	return p, nil
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
	s := senders[sender]
	for i := max(1, s.first-1); i <= min(iterations, s.last+1); i++ {
		points = append(points, plotter.XY{X: float64(i), Y: r.samples[i-1][sender]})
	}
	return points
}
