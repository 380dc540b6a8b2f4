// Package docs has no program: its tests hold the documents against the code.
package docs

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// mostHops is how many functions a reader has to follow from sbatch to reclaim, at most.
const mostHops = 24

var hop = regexp.MustCompile("(?m)^[0-9]+\\. `([^`]+)` \\(`([^`]+)`\\)")

func TestTheWalkOfARequestIsTrue(t *testing.T) {
	hops := hop.FindAllStringSubmatch(section(t, "architecture.md", "### The walk of one request"), -1)
	if len(hops) == 0 || len(hops) > mostHops {
		t.Errorf("the walk has %d hops, want 1 to %d", len(hops), mostHops)
	}
	for _, h := range hops {
		source, err := os.ReadFile(filepath.Join("..", h[2]))
		if err != nil {
			t.Error(err)
			continue
		}
		if !definition(h[1], filepath.Ext(h[2])).Match(source) {
			t.Errorf("%s has no function %s", h[2], h[1])
		}
	}
}

// section returns what a document has from a heading to the next one of the second level.
func section(t *testing.T, document, heading string) string {
	t.Helper()
	text, err := os.ReadFile(document)
	if err != nil {
		t.Fatal(err)
	}
	_, found, _ := strings.Cut(string(text), heading+"\n")
	found, _, _ = strings.Cut(found, "\n## ")
	return found
}

// definition matches the line that begins the function, in a file with that extension.
func definition(name, extension string) *regexp.Regexp {
	receiver, method, isMethod := strings.Cut(name, ".")
	switch {
	case extension == ".go" && isMethod:
		return regexp.MustCompile(`(?m)^func \(\w+ \*?` + receiver + `\) ` + method + `\(`)
	case extension == ".go":
		return regexp.MustCompile(`(?m)^func ` + name + `\(`)
	case extension == ".c":
		return regexp.MustCompile(`(?m)^\w.*\b` + name + `\(.*\)\n\{`)
	}
	return regexp.MustCompile(`(?m)^function ` + name + `\(`)
}
