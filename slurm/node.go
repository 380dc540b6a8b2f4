package slurm

import (
	"context"
	"regexp"
	"strings"
	"time"
)

// Patience bounds how long slurmctld may take to answer about a node.
const Patience = 20 * time.Second

// Hostnames returns the nodes of a list such as n[1-4].
func (c Client) Hostnames(ctx context.Context, list string) ([]string, error) {
	text, err := c.Run(ctx, "scontrol", "show", "hostnames", list)
	return strings.Fields(text), err
}

// NodeAddrs returns by the nodes' names what slurmctld knows them by: host names or
// addresses. For several nodes slurmctld sends its table of all.
func (c Client) NodeAddrs(ctx context.Context, nodes []string) (map[string]string, error) {
	text, err := c.Run(ctx, "scontrol", "--oneliner", "show", "node", strings.Join(nodes, ","))
	return nodeAddrs(text), err
}

var nodeAddr = regexp.MustCompile(`(?m)^NodeName=(\S+) .*?\bNodeAddr=(\S+)`)

// nodeAddrs reads the lines of scontrol show node. What comes before the address in
// them is the administrator's.
func nodeAddrs(text string) map[string]string {
	hosts := map[string]string{}
	for _, found := range nodeAddr.FindAllStringSubmatch(text, -1) {
		hosts[found[1]] = found[2]
	}
	return hosts
}

// Drain takes the node out of use. The jobs that run on it go on.
func (c Client) Drain(ctx context.Context, node, reason string) error {
	return c.control(ctx, "update", "nodename="+node, "state=drain", "reason="+reason)
}

// Resume gives back the node if it was drained for a reason that begins so. A node that
// somebody else has drained stays so.
func (c Client) Resume(ctx context.Context, node, reason string) error {
	text, err := c.Run(ctx, "scontrol", "--oneliner", "show", "node", node)
	if err != nil || !drainedFor(text, reason) {
		return err
	}
	return c.control(ctx, "update", "nodename="+node, "state=resume")
}

// drainedFor reads one line of scontrol show node.
func drainedFor(line, reason string) bool {
	return regexp.MustCompile(`\bState=\S*DRAIN\S* .*\bReason=` + regexp.QuoteMeta(reason)).MatchString(line)
}

func (c Client) control(ctx context.Context, args ...string) error {
	_, err := c.Run(ctx, "scontrol", args...)
	return err
}
