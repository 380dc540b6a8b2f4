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

// A curve is a line of a panel.
type curve struct {
	name   string
	points plotter.XYs
}

var (
	colours = []color.Color{draw.Blue, draw.Vermilion, draw.Green, draw.Grey}
	glyphs  = []vgdraw.GlyphDrawer{vgdraw.CircleGlyph{}, vgdraw.TriangleGlyph{}, vgdraw.SquareGlyph{}, vgdraw.CrossGlyph{}}
)

// drawTo draws the cost of VMs on one node beside the cost of nodes.
func drawTo(p parts, jobs []job, file string) error {
	one, err := panel("VMs on one node", "ms per VM", p.curves())
	if err != nil {
		return err
	}
	many, err := panel("nodes", "s", jobCurves(jobs))
	if err != nil {
		return err
	}
	return draw.Save(file, 24*vg.Centimeter, 9*vg.Centimeter, 2, one, many)
}

func (p parts) curves() []curve {
	var curves []curve
	for _, name := range []string{"launch", "reclaim", "network", "journal"} {
		c := curve{name: name}
		for _, vms := range p.counts() {
			c.points = append(c.points, plotter.XY{X: float64(vms), Y: p[name][vms]})
		}
		curves = append(curves, c)
	}
	return curves
}

func jobCurves(jobs []job) []curve {
	curves := []curve{{name: fmt.Sprintf("%d VMs on each, all have the map", jobs[len(jobs)-1].vms)}, {name: "1 VM on each, all have the map"}, {name: "a step of true"}}
	for _, j := range jobs {
		at := func(y float64) plotter.XY { return plotter.XY{X: float64(j.nodes), Y: y} }
		if j.vms == 1 {
			curves[1].points = append(curves[1].points, at(j.done))
			curves[2].points = append(curves[2].points, at(j.plain))
		} else {
			curves[0].points = append(curves[0].points, at(j.done))
		}
	}
	return curves
}

func panel(x, y string, curves []curve) (*plot.Plot, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = x, y
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.Y.Tick.Marker = plot.LogTicks{Prec: -1}
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	for i, c := range curves {
		line, marks, err := plotter.NewLinePoints(c.points)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width = colours[i], vg.Points(1.5)
		marks.Color, marks.Radius, marks.Shape = colours[i], vg.Points(2), glyphs[i]
		p.Add(line, marks)
		p.Legend.Add(c.name, line, marks)
	}
	p.X.Tick.Marker = counts(curves[0].points)
	p.Y.Max *= 8 // room for the legend
	return p, nil
}

// counts labels the measured numbers.
func counts(points plotter.XYs) (marks plot.ConstantTicks) {
	for _, p := range points {
		marks = append(marks, plot.Tick{Value: p.X, Label: fmt.Sprint(p.X)})
	}
	return marks
}
