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

// NodeAddrs returns, by node name, the host names or addresses under which slurmctld
// knows the nodes. To a question about several nodes, slurmctld sends its table of all
// nodes.
func (c Client) NodeAddrs(ctx context.Context, nodes []string) (map[string]string, error) {
	text, err := c.Run(ctx, "scontrol", "--oneliner", "show", "node", strings.Join(nodes, ","))
	return nodeAddrs(text), err
}

var nodeAddr = regexp.MustCompile(`(?m)^NodeName=(\S+) .*?\bNodeAddr=(\S+)`)

// nodeAddrs reads the lines of scontrol show node. Only the administrator can write the
// fields before the address.
func nodeAddrs(text string) map[string]string {
	hosts := map[string]string{}
	for _, found := range nodeAddr.FindAllStringSubmatch(text, -1) {
		hosts[found[1]] = found[2]
	}
	return hosts
}

// Drain takes the node out of use. Running jobs continue.
func (c Client) Drain(ctx context.Context, node, reason string) error {
	return c.control(ctx, "update", "nodename="+node, "state=drain", "reason="+reason)
}

// Resume puts the node back into use if it was drained for a reason with this prefix. If
// it was drained for another reason, it stays drained.
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
