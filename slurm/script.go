package slurm

import (
	"maps"
	"strings"
	"unicode"
)

// readScript reads the #SBATCH lines, up to the first line that is neither empty nor a
// comment. It parses them like a single command line.
func (s *Submission) readScript(script string) {
	var words []string
	for line := range strings.Lines(script) {
		if text := strings.TrimSpace(line); text != "" && text[0] != '#' {
			break
		}
		directive, ok := strings.CutPrefix(strings.TrimRight(line, "\r\n"), "#SBATCH")
		if !ok {
			continue
		}
		found := splitDirective(directive)
		if len(found) > 0 && (found[0] == "hetjob" || found[0] == "packjob") {
			s.Heterogeneous = true
			break
		}
		words = append(words, found...)
	}
	options, rest := s.grammar.Parse(words)
	s.add(options, fromScript)
	s.Heterogeneous = s.Heterogeneous || startsComponent(rest)
}

// WithScript returns the submission with the options of lines of a batch script
// overriding its own.
func (s Submission) WithScript(lines string) Submission {
	s.options = maps.Clone(s.options)
	s.readScript(lines)
	return s
}

// Without returns the submission without some options.
func (s Submission) Without(names ...string) Submission {
	s.options = maps.Clone(s.options)
	for _, name := range names {
		delete(s.options, name)
	}
	return s
}

// splitDirective splits a line as sbatch does. A backslash keeps the next character,
// except a space outside of quotes. The line ends at # or at an empty word in quotes.
func splitDirective(line string) []string {
	var words []string
	for {
		word, rest, comment := cutWord(strings.TrimLeftFunc(line, unicode.IsSpace))
		if word == "" {
			return words
		}
		words = append(words, word)
		if comment {
			return words
		}
		line = rest
	}
}

// cutWord returns the first word of a line, the rest, and whether the rest is a comment.
func cutWord(line string) (word, rest string, comment bool) {
	var (
		text   strings.Builder
		quote  rune
		escape bool
	)
	for i, r := range line {
		switch {
		case quote == 0 && unicode.IsSpace(r):
			return text.String(), line[i:], false
		case escape:
			escape = false
			text.WriteRune(r)
		case r == '\\':
			escape = true
		case r == quote:
			quote = 0
		case quote == 0 && (r == '"' || r == '\''):
			quote = r
		case quote == 0 && r == '#':
			return text.String(), "", true
		default:
			text.WriteRune(r)
		}
	}
	return text.String(), "", false
}
