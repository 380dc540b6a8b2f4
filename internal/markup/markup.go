// Package markup writes the pages and pictures of Slurm-V: HTML and SVG as trees of
// elements, which escape all names and texts when they are written.
//
// html/template could do that as well, but it calls methods by name, so the linker would
// keep all methods of all types: slurmv would grow by 3 MB.
package markup

import (
	_ "embed"
	"fmt"
	"html"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A Markup is an element or its content. The output is both HTML and XML.
type Markup interface{ write(out *strings.Builder) }

type (
	// An Element has attributes, as alternating names and values.
	Element struct {
		name    string
		attrs   []string
		content Fragment
	}
	// A Fragment is the content of an element.
	Fragment []Markup
	// Text is text of any origin.
	Text string
	// CSS is a style sheet of the program, written as it is.
	CSS string
)

// El returns an element. attrs are alternating names and values.
func El(name string, attrs []string, content ...Markup) Element {
	return Element{name, attrs, content}
}

//go:embed page.css
var pageStyle CSS

// WritePage writes an HTML page that needs no other file. The page is dark if the
// reader's desktop is.
func WritePage(out io.Writer, title string, style CSS, body ...Markup) error {
	return write(out, "<!DOCTYPE html>\n", El("html", []string{"lang", "en"},
		El("head", nil,
			El("meta", []string{"charset", "utf-8"}),
			El("meta", []string{"name", "viewport", "content", "width=device-width, initial-scale=1"}),
			El("title", nil, Text(title)),
			El("style", nil, pageStyle, style)),
		El("body", nil, body...)), "\n")
}

// Write writes an element, such as a picture that is a file of its own.
func Write(out io.Writer, e Element) error { return write(out, "", e, "") }

func write(out io.Writer, before string, e Element, after string) error {
	var file strings.Builder
	file.WriteString(before)
	e.write(&file)
	file.WriteString(after)
	_, err := io.WriteString(out, file.String())
	return err
}

func (e Element) write(out *strings.Builder) {
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
var endless = map[string]bool{"meta": true, "rect": true, "line": true, "circle": true}

// ownLine elements end a line of the file, which makes the file readable.
var ownLine = map[string]bool{"g": true, "svg": true, "tr": true, "style": true, "h1": true, "h2": true, "p": true, "head": true, "text": true, "li": true}

func (all Fragment) write(out *strings.Builder) {
	for _, n := range all {
		n.write(out)
	}
}

func (t Text) write(out *strings.Builder) { out.WriteString(escape(string(t))) }

func (c CSS) write(out *strings.Builder) { out.WriteString("\n" + string(c)) }

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

// Units writes a length of a picture, rounded to a hundredth.
func Units(v float64) string {
	number := strconv.FormatFloat(v, 'f', 2, 64)
	return strings.TrimRight(strings.TrimRight(number, "0"), ".")
}
