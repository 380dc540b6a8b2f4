package owner

import (
	"bytes"
	"strings"
	"unicode"
)

// A Tail keeps the end of a program's output, since a program of the owner can write any
// amount.
type Tail struct{ text []byte }

func (t *Tail) Write(p []byte) (int, error) {
	const keep = 4096
	t.text = append(t.text, p[max(0, len(p)-keep):]...)
	t.text = t.text[max(0, len(t.text)-keep):]
	return len(p), nil
}

// Line returns the last line, shortened and without characters on which a terminal would
// act.
func (t *Tail) Line() string {
	lines := bytes.Split(bytes.TrimSpace(t.text), []byte("\n"))
	line := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, string(lines[len(lines)-1]))
	return line[:min(len(line), 300)]
}
