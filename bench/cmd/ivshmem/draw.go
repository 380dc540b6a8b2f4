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

// A curve is the results of one way to send messages.
type curve struct {
	name   string
	of     func(result) float64 // µs
	colour color.Color
	glyph  vgdraw.GlyphDrawer
}

var curves = []curve{
	{"IVShmem", func(r result) float64 { return r.shm }, draw.Blue, vgdraw.CircleGlyph{}},
	{"TCP", func(r result) float64 { return r.tcp }, draw.Vermilion, vgdraw.TriangleGlyph{}},
}

// drawTo draws the times beside the bandwidths.
func drawTo(results []result, file string) error {
	times, err := panel(results, "half round trip, µs", func(_ result, micros float64) float64 { return micros })
	if err != nil {
		return err
	}
	rates, err := panel(results, "bandwidth, MB/s", result.rate)
	if err != nil {
		return err
	}
	return draw.Save(file, 24*vg.Centimeter, 9*vg.Centimeter, 2, times, rates)
}

func panel(results []result, label string, value func(result, float64) float64) (*plot.Plot, error) {
	p := plot.New()
	p.X.Label.Text, p.Y.Label.Text = "message, bytes", label
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	least, most := math.Inf(1), math.Inf(-1)
	for _, c := range curves {
		points := make(plotter.XYs, len(results))
		for i, r := range results {
			points[i] = plotter.XY{X: float64(r.bytes), Y: value(r, c.of(r))}
			least, most = min(least, points[i].Y), max(most, points[i].Y)
		}
		line, marks, err := plotter.NewLinePoints(points)
		if err != nil {
			return nil, err
		}
		line.Color, line.Width = c.colour, vg.Points(1.5)
		marks.Color, marks.Radius, marks.Shape = c.colour, vg.Points(2), c.glyph
		p.Add(line, marks)
		p.Legend.Add(c.name, line, marks)
	}
	p.X.Tick.Marker = sizes(results)
	p.Y.Min, p.Y.Max = math.Pow(10, math.Floor(math.Log10(least))), math.Pow(10, math.Ceil(math.Log10(most))+0.5)
	p.Y.Tick.Marker = powers(p.Y.Min, p.Y.Max)
	return p, nil
}

// sizes labels every fourth power of two.
func sizes(results []result) (marks plot.ConstantTicks) {
	for _, r := range results {
		if power := int(math.Log2(float64(r.bytes))); power%4 == 0 {
			marks = append(marks, plot.Tick{Value: float64(r.bytes), Label: sizeName(r.bytes)})
		}
	}
	return marks
}

func sizeName(bytes int) string {
	switch {
	case bytes >= 1<<20:
		return fmt.Sprintf("%dM", bytes>>20)
	case bytes >= 1<<10:
		return fmt.Sprintf("%dK", bytes>>10)
	}
	return fmt.Sprint(bytes)
}

func powers(least, most float64) (marks plot.ConstantTicks) {
	for v := least; v <= most; v *= 10 {
		marks = append(marks, plot.Tick{Value: v, Label: fmt.Sprintf("%g", v)})
	}
	return marks
}
