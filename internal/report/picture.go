package report

import (
	"embed"
	"html/template"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

//go:embed picture.css picture.svg page.html
var files embed.FS

// pages are the templates picture.svg and page.html. html/template escapes every name
// for where it stands; what it writes is XML as well.
var pages = template.Must(template.New("").Funcs(template.FuncMap{
	"seconds": seconds, "times": times, "u": units, "add": add, "half": half, "text": printable,
}).ParseFS(files, "*"))

// units writes a length of the picture, to a hundredth.
func units(v float64) string {
	text := strconv.FormatFloat(v, 'f', 2, 64)
	return strings.TrimRight(strings.TrimRight(text, "0"), ".")
}

func add(a float64, more ...float64) float64 {
	for _, b := range more {
		a += b
	}
	return a
}

func half(a float64) float64 { return a / 2 }

// printable replaces the control characters and broken encodings that XML does not allow.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0xFFFE || r == 0xFFFF {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(s, string(utf8.RuneError)))
}

// WriteSVG draws a bar for every stage of each node and VM, over the seconds since the
// VMs were requested. The picture needs no other file, and is dark where the reader's
// desktop is.
func WriteSVG(out io.Writer, nodes []nodeagent.NodeVMs) error {
	return pages.ExecuteTemplate(out, "picture.svg", newChart(nodes))
}

// WriteHTML makes one page of the picture and the tables. It needs no other file.
func WriteHTML(out io.Writer, job string, nodes []nodeagent.NodeVMs) error {
	return pages.ExecuteTemplate(out, "page.html", map[string]any{
		"Job": job, "Summary": Summarize(nodes), "Stages": Rows(nodes), "Nodes": nodes, "Chart": newChart(nodes),
	})
}
