package report

import (
	_ "embed"
	"fmt"
	"io"
	"strings"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

//go:embed picture.css
var pictureStyle css

// Margins around the chart in a separate picture. The one above has the title.
const (
	margin = 16.0
	above  = 40.0
)

// WriteSVG draws a bar for every stage of each node and VM, over the seconds since the
// VMs were requested. The picture needs no other file. It is dark if the reader's desktop
// is.
func WriteSVG(out io.Writer, nodes []nodeagent.NodeVMs) error {
	var file strings.Builder
	newChart(nodes).picture().write(&file)
	_, err := io.WriteString(out, file.String())
	return err
}

func (c chart) picture() element {
	w, h := units(width+2*margin), units(above+c.head+c.body+margin)
	left, top := units(-margin), units(-above)
	return el("svg", []string{
		"xmlns", "http://www.w3.org/2000/svg", "class", "launch", "role", "img", "aria-label", c.title,
		"width", w, "height", h, "viewBox", strings.Join([]string{left, top, w, h}, " "),
	},
		el("style", nil, pictureStyle),
		el("rect", []string{"class", "ground", "x", left, "y", top, "width", w, "height", h}),
		el("text", []string{"class", "title", "x", units(labelX), "y", "-14", "font-size", "15"}, text(c.title)),
		el("g", nil, c.drawHead()),
		el("g", []string{"transform", moved(c.head)}, c.drawBody()))
}

// moved returns the transformation that moves a drawing from y = 0 to y.
func moved(y float64) string { return fmt.Sprintf("translate(0 %s)", units(y)) }

// drawHead draws the legend and the upper labels of the time axis.
func (c chart) drawHead() (all fragment) {
	for _, l := range c.legend {
		all = append(all, faint(labelX, l.y+15, text(l.caption)))
		for _, e := range l.entries {
			swatch := el("rect", []string{"x", units(e.x), "y", units(e.y + 4), "width", "18", "height", "14", "rx", "2"})
			all = append(all,
				el("g", []string{"class", e.class()}, el("title", nil, text(strings.TrimSuffix(e.stage+": "+e.meaning, ": "))), swatch),
				el("text", []string{"x", units(e.x + 24), "y", units(e.y + 15)}, text(e.stage)))
		}
	}
	return append(all, c.drawTimes(c.head-6)...)
}

func faint(x, y float64, content ...markup) element {
	return el("text", []string{"class", "faint", "x", units(x), "y", units(y)}, content...)
}

func (c chart) drawTimes(y float64) (all fragment) {
	for _, t := range c.ticks {
		all = append(all, el("text", []string{"class", "faint", "x", units(t.x), "y", units(y), "text-anchor", "middle"}, text(t.label)))
	}
	return all
}

// drawBody draws the lanes on the lines of the time axis, and the lower labels.
func (c chart) drawBody() (all fragment) {
	if len(c.rows) == 0 {
		return fragment{faint(labelX, 15, text("No stages are recorded."))}
	}
	for _, r := range c.rows {
		if r.node {
			all = append(all, el("rect", []string{"class", "band", "x", "0", "y", units(r.y), "width", units(width), "height", units(c.rowHeight)}))
		}
	}
	bottom := c.body - axisLine
	for _, t := range c.ticks {
		all = append(all, el("line", []string{"class", "grid", "x1", units(t.x), "y1", "0", "x2", units(t.x), "y2", units(bottom)}))
	}
	all = append(all, c.drawTimes(bottom+17)...)
	for _, r := range c.rows {
		all = append(all, c.drawRow(r))
	}
	return all
}

func (c chart) drawRow(r row) element {
	middle := units(c.rowHeight/2 + 4) // baseline of a centred line of text
	all := fragment{c.drawLabel(r, middle)}
	for _, b := range r.bars {
		all = append(all, c.drawBar(b, middle))
	}
	if r.end != "" {
		class := "faint"
		if r.failed {
			class = "failed"
		}
		all = append(all, el("text", []string{"class", class, "x", units(r.endX), "y", middle}, el("title", nil, text(r.endTitle)), text(r.end)))
	}
	return el("g", []string{"transform", moved(r.y), "font-size", units(c.fontSize)}, all...)
}

func (c chart) drawLabel(r row, y string) markup {
	class := "vm"
	if r.node {
		class = "node"
	}
	all := fragment{text(r.label)}
	switch {
	case r.label == "":
		return all
	case r.label != r.full:
		all = append(all, el("title", nil, text(r.full)))
	}
	return el("text", []string{"class", class, "x", units(r.labelX), "y", y}, all...)
}

func (c chart) drawBar(b bar, y string) element {
	all := fragment{
		el("title", nil, text(b.title)),
		el("rect", []string{"x", units(b.x), "y", "3", "width", units(b.width), "height", units(c.rowHeight - 6), "rx", "2"}),
	}
	if b.text != "" {
		all = append(all, el("text", []string{"x", units(b.x + 5), "y", y}, text(b.text)))
	}
	return el("g", []string{"class", b.class()}, all...)
}
