package report

import (
	"io"

	"github.com/slurm-v/slurm-v/internal/markup"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

// WriteHTML writes one page with the picture and the tables. It needs no other file.
func WriteHTML(out io.Writer, job string, nodes []nodeagent.NodeVMs) error {
	title := "Launch of job " + job
	return markup.WritePage(out, title, pictureStyle, body(title, nodes)...)
}

func body(title string, launched []nodeagent.NodeVMs) markup.Fragment {
	c, rows := newChart(launched), Rows(launched)
	summary := markup.Text(c.title)
	if len(rows) > 0 {
		summary += ". Point at a bar to see its stage, start and duration."
	}
	return markup.Fragment{
		markup.El("h1", nil, markup.Text(title)),
		markup.El("p", nil, summary),
		// The head stays in sight while the body scrolls.
		markup.El("div", nil,
			markup.El("div", []string{"class", "head"}, inPage("Legend and time axis", c.head, c.drawHead())),
			inPage(c.title, c.body, c.drawBody())),
		markup.El("h2", nil, markup.Text("Stages")),
		markup.El("div", []string{"class", "wide"}, stageTable(c, rows)),
		markup.El("h2", nil, markup.Text("VMs")),
		markup.El("div", []string{"class", "wide"}, vmTable(launched, rows)),
	}
}

func inPage(about string, height float64, content markup.Fragment) markup.Element {
	return markup.El("svg", []string{"class", "launch", "role", "img", "aria-label", about, "viewBox", "0 0 " + markup.Units(width) + " " + markup.Units(height)}, content...)
}

func cell(content ...markup.Markup) markup.Element { return markup.El("td", nil, content...) }

// textCell is a cell for words: numbers are right-aligned.
func textCell(content ...markup.Markup) markup.Element {
	return markup.El("td", []string{"class", "text"}, content...)
}

func table(header markup.Fragment, lines markup.Fragment) markup.Element {
	return markup.El("table", nil, markup.El("thead", nil, markup.El("tr", nil, header...)), markup.El("tbody", nil, lines...))
}

func heading(words string) markup.Element { return markup.El("th", nil, markup.Text(words)) }

func textHeading(words string) markup.Element {
	return markup.El("th", []string{"class", "text"}, markup.Text(words))
}

func stageTable(c chart, rows []Row) markup.Element {
	var lines markup.Fragment
	for _, r := range rows {
		lines = append(lines, markup.El("tr", nil,
			textCell(c.swatch(r.Stage), markup.Text(r.Stage)),
			cell(markup.Text(seconds(r.Min))), cell(markup.Text(seconds(r.Median))), cell(markup.Text(seconds(r.Max))),
			markup.El("td", []string{"class", "text what"}, markup.Text(r.Meaning))))
	}
	return table(markup.Fragment{textHeading("stage"), heading("min"), heading("median"), heading("max"), textHeading("what")}, lines)
}

// swatch shows how a stage is drawn; it is empty for a stage that is not in the chart.
func (c chart) swatch(stage string) markup.Fragment {
	for _, l := range c.legend {
		for _, e := range l.entries {
			if e.stage == stage {
				return markup.Fragment{markup.El("svg", []string{"class", "launch key", "viewBox", "0 0 18 14", "aria-hidden", "true"},
					markup.El("g", []string{"class", e.class()}, markup.El("rect", []string{"x", "0.5", "y", "0.5", "width", "17", "height", "13", "rx", "2"})))}
			}
		}
	}
	return nil
}

func vmTable(launched []nodeagent.NodeVMs, rows []Row) markup.Element {
	header := markup.Fragment{textHeading("VM"), textHeading("node")}
	for _, r := range rows {
		header = append(header, heading(r.Stage))
	}
	var lines markup.Fragment
	for _, n := range launched {
		for _, vm := range n.VMs {
			line := markup.Fragment{textCell(markup.Text(vm.Name)), textCell(markup.Text(n.Node))}
			for _, t := range times(n, vm, rows) {
				line = append(line, cell(markup.Text(t)))
			}
			lines = append(lines, markup.El("tr", nil, line...))
		}
	}
	return table(header, lines)
}
