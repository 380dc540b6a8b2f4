package report

import (
	"bytes"
	_ "embed"
	"html/template"
	"image/color"
	"io"
	"slices"
	"strings"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

// A lane is one line of the picture. A node has as many as stages that its VMs
// share went on at once, a VM has one.
type lane struct {
	label  string
	stages []nodeagent.Stage // none overlaps with another
	offset time.Duration     // from the zero of the picture to that of the stages
}

// lanes puts each node above its VMs.
func lanes(nodes []nodeagent.NodeVMs) []lane {
	var all []lane
	zero := firstRequest(nodes)
	for _, n := range nodes {
		offset := n.Began.Sub(zero)
		for i, stages := range apart(n.Stages) {
			label := ""
			if i == 0 {
				label = n.Node
			}
			all = append(all, lane{label, stages, offset})
		}
		for _, vm := range n.VMs {
			all = append(all, lane{vm.Name, vm.Stages, offset})
		}
	}
	return all
}

// visible is what a stage has to take to be seen.
const visible = time.Millisecond

// apart spreads stages, ordered by their beginnings, over as few lanes as they need.
func apart(stages []nodeagent.Stage) (spread [][]nodeagent.Stage) {
	for _, s := range stages {
		if s.End-s.Start < visible {
			continue
		}
		free := slices.IndexFunc(spread, func(lane []nodeagent.Stage) bool { return lane[len(lane)-1].End <= s.Start })
		if free < 0 {
			free, spread = len(spread), append(spread, nil)
		}
		spread[free] = append(spread[free], s)
	}
	return spread
}

// colours are Okabe and Ito's, which colour-blind readers tell apart, and then the
// same paler.
var colours = []color.Color{
	color.RGBA{R: 153, G: 153, B: 153, A: 255}, color.RGBA{R: 230, G: 159, B: 0, A: 255}, color.RGBA{R: 86, G: 180, B: 233, A: 255},
	color.RGBA{R: 0, G: 158, B: 115, A: 255}, color.RGBA{R: 240, G: 228, B: 66, A: 255}, color.RGBA{R: 0, G: 114, B: 178, A: 255},
	color.RGBA{R: 213, G: 94, B: 0, A: 255}, color.RGBA{R: 204, G: 121, B: 167, A: 255}, color.RGBA{R: 204, G: 204, B: 204, A: 255},
	color.RGBA{R: 247, G: 217, B: 153, A: 255}, color.RGBA{R: 187, G: 225, B: 246, A: 255}, color.RGBA{R: 153, G: 216, B: 199, A: 255},
	color.RGBA{R: 153, G: 199, B: 224, A: 255}, color.RGBA{R: 238, G: 191, B: 153, A: 255}, color.RGBA{R: 235, G: 201, B: 220, A: 255},
}

// bars draws one stage wherever it occurs.
type bars struct {
	stage  string
	colour color.Color
	lanes  []lane
}

// Plot implements [plot.Plotter]. The first lane is at the top.
func (b bars) Plot(c draw.Canvas, p *plot.Plot) {
	x, y := p.Transforms(&c)
	for i, l := range b.lanes {
		middle := float64(len(b.lanes) - 1 - i)
		for _, s := range l.stages {
			if s.Name != b.stage {
				continue
			}
			from, to := x((l.offset + s.Start).Seconds()), x((l.offset + s.End).Seconds())
			low, high := y(middle-0.4), y(middle+0.4)
			c.FillPolygon(b.colour, []vg.Point{{X: from, Y: low}, {X: to, Y: low}, {X: to, Y: high}, {X: from, Y: high}})
		}
	}
}

// Thumbnail implements [plot.Thumbnailer].
func (b bars) Thumbnail(c *draw.Canvas) {
	c.FillPolygon(b.colour, []vg.Point{c.Min, {X: c.Max.X, Y: c.Min.Y}, c.Max, {X: c.Min.X, Y: c.Max.Y}})
}

// WriteSVG draws a bar for every stage, of each node and VM, over the seconds since
// the VMs were requested.
func WriteSVG(out io.Writer, nodes []nodeagent.NodeVMs) error {
	all := lanes(nodes)
	p, legend := plot.New(), plot.NewLegend()
	p.Title.Text, p.X.Label.Text = Summarize(nodes).String(), "seconds"
	p.X.Min, p.X.Max = 0, max(0.001, Summarize(nodes).Ready.Seconds())
	p.Y.Min, p.Y.Max = -0.5, float64(len(all))-0.5
	p.Y.Tick.Marker = labels(all)
	p.Add(plotter.NewGrid())
	for i, r := range Rows(nodes) {
		if r.Stage == ready {
			continue
		}
		b := bars{r.Stage, colours[i%len(colours)], all}
		p.Add(b)
		legend.Add(r.Stage, b)
	}
	const width, beside = 24 * vg.Centimeter, 3 * vg.Centimeter
	p.Title.Padding = vg.Millimeter
	legend.Top, legend.Left, legend.Padding = true, true, vg.Millimeter
	canvas := vgsvg.New(width, 4*vg.Centimeter+vg.Length(max(len(all), len(Rows(nodes))))*vg.Centimeter/2)
	whole := draw.New(canvas)
	p.Draw(draw.Crop(whole, 0, -beside, 0, -vg.Millimeter))
	legend.Draw(draw.Crop(whole, width-beside+vg.Millimeter*3, 0, 0, -vg.Centimeter))
	_, err := canvas.WriteTo(out)
	return err
}

func labels(all []lane) (marks plot.ConstantTicks) {
	for i, l := range all {
		marks = append(marks, plot.Tick{Value: float64(len(all) - 1 - i), Label: l.label})
	}
	return marks
}

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{"seconds": seconds, "times": times}).Parse(pageText))

// WriteHTML makes a page that needs nothing else: the picture, and the tables.
func WriteHTML(out io.Writer, job string, nodes []nodeagent.NodeVMs) error {
	var picture bytes.Buffer
	if err := WriteSVG(&picture, nodes); err != nil {
		return err
	}
	_, svg, _ := strings.Cut(picture.String(), "<svg") // without the XML prologue
	return page.Execute(out, map[string]any{
		"Job": job, "Summary": Summarize(nodes), "Rows": Rows(nodes), "Nodes": nodes,
		"Picture": template.HTML("<svg" + svg),
	})
}
