package report

import (
	"fmt"
	"html"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Picture and page are trees of elements, which escape all names and texts when they are
// written. html/template could do that as well, but it calls methods by name, so the
// linker would keep all methods of all types: slurmv would grow by 3 MB.

// A markup is an element or its content. The output is both HTML and XML.
type markup interface{ write(out *strings.Builder) }

type (
	// An element has attributes, as alternating names and values.
	element struct {
		name    string
		attrs   []string
		content fragment
	}
	fragment []markup
	text     string // of any origin
	css      string // a file of this package, written as it is
)

func el(name string, attrs []string, content ...markup) element {
	return element{name, attrs, content}
}

func (e element) write(out *strings.Builder) {
	out.WriteString("<" + e.name)
	for i := 0; i < len(e.attrs); i += 2 {
		fmt.Fprintf(out, ` %s="%s"`, e.attrs[i], escape(e.attrs[i+1]))
	}
	if endless[e.name] {
		out.WriteString("/>")
		return
	}
	out.WriteString(">")
	e.content.write(out)
	out.WriteString("</" + e.name + ">")
	if ownLine[e.name] {
		out.WriteString("\n")
	}
}

// endless elements have no content; in HTML, all others must have an end tag.
var endless = map[string]bool{"meta": true, "rect": true, "line": true}

// ownLine elements end a line of the file, which makes the file readable.
var ownLine = map[string]bool{"g": true, "svg": true, "tr": true, "style": true, "h1": true, "h2": true, "p": true, "head": true, "text": true}

func (all fragment) write(out *strings.Builder) {
	for _, n := range all {
		n.write(out)
	}
}

func (t text) write(out *strings.Builder) { out.WriteString(escape(string(t))) }

func (c css) write(out *strings.Builder) { out.WriteString("\n" + string(c)) }

// escape makes s safe as text. It replaces control characters and broken encodings, which
// XML does not allow, by U+FFFD.
func escape(s string) string {
	return html.EscapeString(strings.Map(func(r rune) rune {
		if r < ' ' && r != '\n' && r != '\t' || r == 0xFFFE || r == 0xFFFF {
			return utf8.RuneError
		}
		return r
	}, strings.ToValidUTF8(s, string(utf8.RuneError))))
}

// units writes a length of the picture, rounded to a hundredth.
func units(v float64) string {
	number := strconv.FormatFloat(v, 'f', 2, 64)
	return strings.TrimRight(strings.TrimRight(number, "0"), ".")
}
