package main

import (
	"fmt"
	"image/color"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	vgdraw "gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// A curve is a line of a panel. Colour-blind readers tell them apart, too.
type curve struct {
	name   string
	points plotter.XYs
}

var (
	colours = []color.Color{color.RGBA{R: 0, G: 114, B: 178, A: 255}, color.RGBA{R: 213, G: 94, B: 0, A: 255}, color.RGBA{R: 0, G: 158, B: 115, A: 255}, color.RGBA{R: 86, G: 86, B: 86, A: 255}}
	glyphs  = []vgdraw.GlyphDrawer{vgdraw.CircleGlyph{}, vgdraw.TriangleGlyph{}, vgdraw.SquareGlyph{}, vgdraw.CrossGlyph{}}
)

// draw puts what VMs cost on one node beside what nodes cost.
func draw(p parts, jobs []job, file string) error {
	one, err := panel("VMs on one node", "ms per VM", p.curves())
	if err != nil {
		return err
	}
	many, err := panel("nodes", "s", jobCurves(jobs))
	if err != nil {
		return err
	}
	canvas := vgsvg.New(24*vg.Centimeter, 9*vg.Centimeter)
	tiles := vgdraw.Tiles{Rows: 1, Cols: 2, PadX: vg.Millimeter * 5, PadTop: vg.Millimeter, PadRight: vg.Millimeter * 3}
	whole := vgdraw.New(canvas)
	one.Draw(tiles.At(whole, 0, 0))
	many.Draw(tiles.At(whole, 1, 0))
	out, err := os.Create(file)
	if err != nil {
		return err
	}
	if _, err := canvas.WriteTo(out); err != nil {
		return err
	}
	return out.Close()
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

// counts marks the numbers that were measured.
func counts(points plotter.XYs) (marks plot.ConstantTicks) {
	for _, p := range points {
		marks = append(marks, plot.Tick{Value: p.X, Label: fmt.Sprint(p.X)})
	}
	return marks
}
