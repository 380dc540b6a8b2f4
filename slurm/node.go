package slurm

import (
	"context"
	"regexp"
	"slices"
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

// CountNodes returns how many nodes the partitions have. Their list is short. To a question about all nodes, slurmctld sends
// its table of nodes, which is megabytes in a large cluster.
func CountNodes(ctx context.Context, c Client) (int, error) {
	text, err := c.Run(ctx, "scontrol", "--all", "--local", "--oneliner", "show", "partition")
	if err != nil {
		return 0, err
	}
	return countNodes(text)
}

var partitionNodes = regexp.MustCompile(`(?m)^PartitionName=.*?\bNodes=(\S+)`)

// countNodes reads the lines of scontrol show partition. A node counts once, whatever partitions it is in.
func countNodes(text string) (int, error) {
	nodes := map[string]bool{}
	for _, found := range partitionNodes.FindAllStringSubmatch(text, -1) {
		if found[1] == "(null)" {
			continue
		}
		names, err := Expand(found[1])
		if err != nil {
			return 0, err
		}
		for _, name := range names {
			nodes[name] = true
		}
	}
	return len(nodes), nil
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

// Drain takes the node out of use. Running jobs continue. If the node is out of use for a
// reason that does not begin with ours, it keeps that, and drained is false.
func (c Client) Drain(ctx context.Context, node, reason, ours string) (drained bool, err error) {
	text, err := c.Run(ctx, "scontrol", "--oneliner", "show", "node", node)
	if err != nil || outOfUseBut(text, ours) {
		return false, err
	}
	err = c.control(ctx, "update", "nodename="+node, "state=drain", "reason="+reason)
	return err == nil, err
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

// A standing is why a node is in use or not.
type standing struct {
	state  []string // such as MIXED, DRAIN
	reason string   // and what follows it in the line; "" for none
}

// standsAs matches a line of scontrol show node. Administrators write the reason and the
// texts that follow it, so the first reason after the state counts.
var standsAs = regexp.MustCompile(`\bState=(\S+)(?: .*?\bReason=(.*))?`)

func standingOf(line string) (s standing) {
	if f := standsAs.FindStringSubmatch(line); f != nil {
		s = standing{stateWords(f[1]), f[2]}
	}
	return s
}

var drainedStates = []string{"DRAIN", "DRAINED", "DRAINING"}

// drainedFor reports whether the node is drained for a reason with this prefix.
func drainedFor(line, reason string) bool {
	s := standingOf(line)
	return s.is(drainedStates...) && strings.HasPrefix(s.reason, reason)
}

// outOfUseBut reports whether the node is out of use for a reason without this prefix. Nodes
// that are down or failing count: resumed, they would be idle.
func outOfUseBut(line, reason string) bool {
	s := standingOf(line)
	return s.is(append(slices.Clip(drainedStates), "DOWN", "FAIL", "FAILING")...) && !strings.HasPrefix(s.reason, reason)
}

func (s standing) is(words ...string) bool {
	return slices.ContainsFunc(words, func(word string) bool { return slices.Contains(s.state, word) })
}

func (c Client) control(ctx context.Context, args ...string) error {
	_, err := c.Run(ctx, "scontrol", args...)
	return err
}
