package report

import (
	_ "embed"
	"io"
	"strings"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

//go:embed page.css
var pageStyle css

// WriteHTML writes one page with the picture and the tables. It needs no other file.
func WriteHTML(out io.Writer, job string, nodes []nodeagent.NodeVMs) error {
	var file strings.Builder
	file.WriteString("<!DOCTYPE html>\n")
	page(job, nodes).write(&file)
	_, err := io.WriteString(out, file.String()+"\n")
	return err
}

func page(job string, launched []nodeagent.NodeVMs) element {
	title := text("Launch of job " + job)
	c, rows := newChart(launched), Rows(launched)
	summary := text(c.title)
	if len(rows) > 0 {
		summary += ". Point at a bar to see its stage, start and duration."
	}
	return el("html", []string{"lang", "en"},
		el("head", nil,
			el("meta", []string{"charset", "utf-8"}),
			el("meta", []string{"name", "viewport", "content", "width=device-width, initial-scale=1"}),
			el("title", nil, title),
			el("style", nil, pageStyle, pictureStyle)),
		el("body", nil,
			el("h1", nil, title),
			el("p", nil, summary),
			// The head stays in sight while the body scrolls.
			el("div", nil,
				el("div", []string{"class", "head"}, inPage("Legend and time axis", c.head, c.drawHead())),
				inPage(c.title, c.body, c.drawBody())),
			el("h2", nil, text("Stages")),
			el("div", []string{"class", "wide"}, stageTable(c, rows)),
			el("h2", nil, text("VMs")),
			el("div", []string{"class", "wide"}, vmTable(launched, rows))))
}

func inPage(about string, height float64, content fragment) element {
	return el("svg", []string{"class", "launch", "role", "img", "aria-label", about, "viewBox", "0 0 " + units(width) + " " + units(height)}, content...)
}

func cell(content ...markup) element { return el("td", nil, content...) }

// textCell is a cell for words: numbers are right-aligned.
func textCell(content ...markup) element { return el("td", []string{"class", "text"}, content...) }

func table(header fragment, lines fragment) element {
	return el("table", nil, el("thead", nil, el("tr", nil, header...)), el("tbody", nil, lines...))
}

func heading(words string) element { return el("th", nil, text(words)) }

func textHeading(words string) element { return el("th", []string{"class", "text"}, text(words)) }

func stageTable(c chart, rows []Row) element {
	var lines fragment
	for _, r := range rows {
		lines = append(lines, el("tr", nil,
			textCell(c.swatch(r.Stage), text(r.Stage)),
			cell(text(seconds(r.Min))), cell(text(seconds(r.Median))), cell(text(seconds(r.Max))),
			el("td", []string{"class", "text what"}, text(r.Meaning))))
	}
	return table(fragment{textHeading("stage"), heading("min"), heading("median"), heading("max"), textHeading("what")}, lines)
}

// swatch shows how a stage is drawn; it is empty for a stage that is not in the chart.
func (c chart) swatch(stage string) fragment {
	for _, l := range c.legend {
		for _, e := range l.entries {
			if e.stage == stage {
				return fragment{el("svg", []string{"class", "launch key", "viewBox", "0 0 18 14", "aria-hidden", "true"},
					el("g", []string{"class", e.class()}, el("rect", []string{"x", "0.5", "y", "0.5", "width", "17", "height", "13", "rx", "2"})))}
			}
		}
	}
	return nil
}

func vmTable(launched []nodeagent.NodeVMs, rows []Row) element {
	header := fragment{textHeading("VM"), textHeading("node")}
	for _, r := range rows {
		header = append(header, heading(r.Stage))
	}
	var lines fragment
	for _, n := range launched {
		for _, vm := range n.VMs {
			line := fragment{textCell(text(vm.Name)), textCell(text(n.Node))}
			for _, t := range times(n, vm, rows) {
				line = append(line, cell(text(t)))
			}
			lines = append(lines, el("tr", nil, line...))
		}
	}
	return table(header, lines)
}
