package prove

import (
	"fmt"
	"os"
	"os/user"
	"regexp"
	"slices"
	"strings"
)

// Names are those of a site that a proof does not tell.
type Names struct {
	Nodes  []string // in the order of their numbers
	Others []string // the submit host, users
}

// LocalNames are the names of the nodes, of this host and of the user.
func LocalNames(nodes []string) Names {
	n := Names{Nodes: nodes}
	if host, err := os.Hostname(); err == nil {
		short, _, _ := strings.Cut(host, ".")
		n.Others = append(n.Others, host, short)
	}
	if me, err := user.Current(); err == nil && me.Username != "root" {
		n.Others = append(n.Others, me.Username)
	}
	return n
}

// The order matters: a path may contain names, and a MAC address looks like an IPv6 address.
var patterns = []struct {
	found *regexp.Regexp
	by    string
}{
	{regexp.MustCompile(`(^|[\s"'(=:,])/[^\s"'(),;:]+`), "${1}PATH"},
	{regexp.MustCompile(`\b[0-9]{1,3}(\.[0-9]{1,3}){3}\b`), "ADDRESS"},
	{regexp.MustCompile(`(?i)\b[0-9a-f]{1,4}(:[0-9a-f]{0,4}){3,7}\b`), "ADDRESS"},
}

// Hide replaces names of nodes by their numbers, and other names, addresses and absolute
// paths by what they are.
func (n Names) Hide(text string) string {
	for _, p := range patterns {
		text = p.found.ReplaceAllString(text, p.by)
	}
	numbers := map[string]string{}
	for i, node := range n.Nodes {
		numbers[node] = fmt.Sprintf("node %d", i+1)
	}
	for _, other := range n.Others {
		if numbers[other] == "" {
			numbers[other] = "NAME"
		}
	}
	delete(numbers, "")
	return replaceWords(text, numbers)
}

// replaceWords prefers longer words: a name may begin like another.
func replaceWords(text string, by map[string]string) string {
	var words []string
	for word := range by {
		words = append(words, regexp.QuoteMeta(word))
	}
	if len(words) == 0 {
		return text
	}
	slices.SortFunc(words, func(a, b string) int { return len(b) - len(a) })
	whole := regexp.MustCompile(`(node )?\b(` + strings.Join(words, "|") + `)\b(\.[A-Za-z][\w.-]*)?`)
	return whole.ReplaceAllStringFunc(text, func(found string) string { return by[whole.FindStringSubmatch(found)[2]] })
}
