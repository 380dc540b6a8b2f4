package prove

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/user"
	"regexp"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/slurm"
)

// Names are those of a site that a proof does not tell.
type Names struct {
	Nodes  []string // in the order of their numbers
	Others []string // the submit host, users, the cluster and its hosts
}

// SiteNames are the names of the nodes, of this host and of the user, and those by which Slurm knows the cluster and its
// hosts: a step that fails may quote a command that names any of them. The error says which names are missing.
func SiteNames(ctx context.Context, c slurm.Client, nodes []string) (Names, error) {
	n := localNames(nodes)
	ctx, cancel := context.WithTimeout(ctx, slurm.Patience)
	defer cancel()
	names, err := slurm.SiteNames(ctx, c)
	for _, name := range names {
		n.Others = append(n.Others, namesOf(name)...)
	}
	if err != nil {
		return n, fmt.Errorf("ask slurmctld for the names of the cluster's hosts: %w", err)
	}
	return n, nil
}

func localNames(nodes []string) Names {
	n := Names{Nodes: nodes}
	if host, err := os.Hostname(); err == nil {
		n.Others = append(n.Others, withShort(host)...)
	}
	if me, err := user.Current(); err == nil && me.Username != "root" {
		n.Others = append(n.Others, me.Username)
	}
	return n
}

func withShort(host string) []string {
	short, _, _ := strings.Cut(host, ".")
	return []string{host, short}
}

// plain are words that sites call a cluster or host and that a proof needs.
var plain = []string{"cluster", "linux", "localhost", "slurm"}

// namesOf returns what to hide of a host that Slurm names. Addresses are found by their form, and the first part of one is
// any number.
func namesOf(host string) []string {
	if _, err := netip.ParseAddr(host); err == nil || slices.Contains(plain, host) {
		return nil
	}
	return withShort(host)
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
	return replaceWords(n.hideLists(text), n.in(text))
}

// in returns what stands for each name that is somewhere in the text. A cluster may have tens of thousands of nodes.
func (n Names) in(text string) map[string]string {
	by := map[string]string{}
	for i, node := range n.Nodes {
		if strings.Contains(text, node) {
			by[node] = fmt.Sprintf("node %d", i+1)
		}
	}
	for _, other := range n.Others {
		if by[other] == "" && strings.Contains(text, other) {
			by[other] = "NAME"
		}
	}
	delete(by, "")
	return by
}

var list = regexp.MustCompile(`\b[A-Za-z][\w.-]*(\[[0-9][0-9,-]*\]([\w.-]*\w)?)+`)

// hideLists replaces lists of nodes such as n[1-4], which contain no node's whole name.
func (n Names) hideLists(text string) string {
	return list.ReplaceAllStringFunc(text, func(found string) string {
		hosts, err := slurm.Expand(found)
		if err == nil && len(hosts) > 0 && (slices.Contains(n.Nodes, hosts[0]) || slices.Contains(n.Others, hosts[0])) {
			return "NAMES"
		}
		return found
	})
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
