package report

import (
	_ "embed"
	"fmt"
	"io"
	"strings"

	"github.com/slurm-v/slurm-v/internal/markup"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

//go:embed picture.css
var pictureStyle markup.CSS

// Margins around the chart in a separate picture. The one above has the title.
const (
	margin = 16.0
	above  = 40.0
)

// WriteSVG draws a bar for every stage of each node and VM, over the seconds since the
// VMs were requested. The picture needs no other file. It is dark if the reader's desktop
// is.
func WriteSVG(out io.Writer, nodes []nodeagent.NodeVMs) error {
	return markup.Write(out, newChart(nodes).picture())
}

func (c chart) picture() markup.Element {
	w, h := markup.Units(width+2*margin), markup.Units(above+c.head+c.body+margin)
	left, top := markup.Units(-margin), markup.Units(-above)
	return markup.El("svg", []string{
		"xmlns", "http://www.w3.org/2000/svg", "class", "launch", "role", "img", "aria-label", c.title,
		"width", w, "height", h, "viewBox", strings.Join([]string{left, top, w, h}, " "),
	},
		markup.El("style", nil, pictureStyle),
		markup.El("rect", []string{"class", "ground", "x", left, "y", top, "width", w, "height", h}),
		markup.El("text", []string{"class", "title", "x", markup.Units(labelX), "y", "-14", "font-size", "15"}, markup.Text(c.title)),
		markup.El("g", nil, c.drawHead()),
		markup.El("g", []string{"transform", moved(c.head)}, c.drawBody()))
}

// moved returns the transformation that moves a drawing from y = 0 to y.
func moved(y float64) string { return fmt.Sprintf("translate(0 %s)", markup.Units(y)) }

// drawHead draws the legend and the upper labels of the time axis.
func (c chart) drawHead() (all markup.Fragment) {
	for _, l := range c.legend {
		all = append(all, faint(labelX, l.y+15, markup.Text(l.caption)))
		for _, e := range l.entries {
			swatch := markup.El("rect", []string{"x", markup.Units(e.x), "y", markup.Units(e.y + 4), "width", "18", "height", "14", "rx", "2"})
			all = append(all,
				markup.El("g", []string{"class", e.class()}, markup.El("title", nil, markup.Text(strings.TrimSuffix(e.stage+": "+e.meaning, ": "))), swatch),
				markup.El("text", []string{"x", markup.Units(e.x + 24), "y", markup.Units(e.y + 15)}, markup.Text(e.stage)))
		}
	}
	return append(all, c.drawTimes(c.head-6)...)
}

func faint(x, y float64, content ...markup.Markup) markup.Element {
	return markup.El("text", []string{"class", "faint", "x", markup.Units(x), "y", markup.Units(y)}, content...)
}

func (c chart) drawTimes(y float64) (all markup.Fragment) {
	for _, t := range c.ticks {
		all = append(all, markup.El("text", []string{"class", "faint", "x", markup.Units(t.x), "y", markup.Units(y), "text-anchor", "middle"}, markup.Text(t.label)))
	}
	return all
}

// drawBody draws the lanes on the lines of the time axis, and the lower labels.
func (c chart) drawBody() (all markup.Fragment) {
	if len(c.rows) == 0 {
		return markup.Fragment{faint(labelX, 15, markup.Text("No stages are recorded."))}
	}
	for _, r := range c.rows {
		if r.node {
			all = append(all, markup.El("rect", []string{"class", "band", "x", "0", "y", markup.Units(r.y), "width", markup.Units(width), "height", markup.Units(c.rowHeight)}))
		}
	}
	bottom := c.body - axisLine
	for _, t := range c.ticks {
		all = append(all, markup.El("line", []string{"class", "grid", "x1", markup.Units(t.x), "y1", "0", "x2", markup.Units(t.x), "y2", markup.Units(bottom)}))
	}
	all = append(all, c.drawTimes(bottom+17)...)
	for _, r := range c.rows {
		all = append(all, c.drawRow(r))
	}
	return all
}

func (c chart) drawRow(r row) markup.Element {
	middle := markup.Units(c.rowHeight/2 + 4) // baseline of a centred line of text
	all := markup.Fragment{c.drawLabel(r, middle)}
	for _, b := range r.bars {
		all = append(all, c.drawBar(b, middle))
	}
	if r.end != "" {
		class := "faint"
		if r.failed {
			class = "failed"
		}
		all = append(all, markup.El("text", []string{"class", class, "x", markup.Units(r.endX), "y", middle}, markup.El("title", nil, markup.Text(r.endTitle)), markup.Text(r.end)))
	}
	return markup.El("g", []string{"transform", moved(r.y), "font-size", markup.Units(c.fontSize)}, all...)
}

func (c chart) drawLabel(r row, y string) markup.Markup {
	class := "vm"
	if r.node {
		class = "node"
	}
	all := markup.Fragment{markup.Text(r.label)}
	switch {
	case r.label == "":
		return all
	case r.label != r.full:
		all = append(all, markup.El("title", nil, markup.Text(r.full)))
	}
	return markup.El("text", []string{"class", class, "x", markup.Units(r.labelX), "y", y}, all...)
}

func (c chart) drawBar(b bar, y string) markup.Element {
	all := markup.Fragment{
		markup.El("title", nil, markup.Text(b.title)),
		markup.El("rect", []string{"x", markup.Units(b.x), "y", "3", "width", markup.Units(b.width), "height", markup.Units(c.rowHeight - 6), "rx", "2"}),
	}
	if b.text != "" {
		all = append(all, markup.El("text", []string{"x", markup.Units(b.x + 5), "y", y}, markup.Text(b.text)))
	}
	return markup.El("g", []string{"class", b.class()}, all...)
}
