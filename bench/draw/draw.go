// Package draw has what the benchmarks' figures share.
package draw

import (
	"image/color"
	"os"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The colours of Okabe and Ito, which colour-blind readers can tell apart.
var (
	Blue      = color.RGBA{R: 0, G: 114, B: 178, A: 255}
	Vermilion = color.RGBA{R: 213, G: 94, B: 0, A: 255}
	Green     = color.RGBA{R: 0, G: 158, B: 115, A: 255}
	Orange    = color.RGBA{R: 230, G: 159, B: 0, A: 255}
	Sky       = color.RGBA{R: 86, G: 180, B: 233, A: 255}
	Purple    = color.RGBA{R: 204, G: 121, B: 167, A: 255}
	Grey      = color.RGBA{R: 120, G: 120, B: 120, A: 255}
)

// Save writes plots to an SVG file, in that many columns. Width and height are those of
// the whole picture.
func Save(path string, width, height vg.Length, columns int, plots ...*plot.Plot) error {
	canvas := vgsvg.New(width, height)
	tiles := draw.Tiles{
		Rows: (len(plots) + columns - 1) / columns, Cols: columns,
		PadX: 5 * vg.Millimeter, PadY: 5 * vg.Millimeter, PadTop: 2 * vg.Millimeter, PadRight: 3 * vg.Millimeter,
	}
	whole := draw.New(canvas)
	for i, p := range plots {
		p.Draw(tiles.At(whole, i%columns, i/columns))
	}
	file, err := os.Create(path)
	if err != nil {
		return err
	}
	if _, err := canvas.WriteTo(file); err != nil {
		return err
	}
	return file.Close()
}
