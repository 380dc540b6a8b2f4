package slurm

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"slices"
	"strings"
)

// A NodeRecord is what slurmctld says of a node.
type NodeRecord struct {
	Name  string
	State []string // such as MIXED, DRAIN

	// Comment contains the node's Comment, among other texts of administrators: scontrol
	// does not mark where each ends. A blank comes before each Comment, so that its first
	// word stands alone. [Comments.NodeComment] returns the exact text.
	Comment string
}

// maxList bounds the text of a list of nodes, in bytes. The kernel refuses an argument of
// 128 KiB.
const maxList = 100_000

// NodeRecords returns, by node name, what slurmctld says of the nodes; nothing of those
// that it does not know.
func (c Comments) NodeRecords(ctx context.Context, nodes []string) (map[string]NodeRecord, error) {
	if len(nodes) == 0 {
		return nil, nil
	}
	args := []string{"--oneliner", "show", "node"}
	if list := strings.Join(nodes, ","); len(list) < maxList {
		args = append(args, list)
	}
	text, err := c.showNodes(ctx, args)
	if err != nil {
		return nil, err
	}
	return parseNodeRecords(text, nodes)
}

// AllNodeRecords returns, by node name, what slurmctld says of its nodes. Without --all, a
// SlurmUser that is not root does not see those of hidden partitions.
func (c Comments) AllNodeRecords(ctx context.Context) (map[string]NodeRecord, error) {
	text, err := c.showNodes(ctx, []string{"--all", "--oneliner", "show", "node"})
	if err != nil {
		return nil, err
	}
	return parseNodeRecords(text, nil)
}

// unknownNode is what scontrol prints of a node that slurmctld does not know. It then exits
// with the status 1, after it has printed the others.
var unknownNode = regexp.MustCompile(`(?m)^Node \S+ not found$`)

func (c Comments) showNodes(ctx context.Context, args []string) (string, error) {
	command, err := c.command(ctx, "scontrol", args...)
	if err != nil {
		return "", err
	}
	out, err := command.Output()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit) && exit.ExitCode() == 1 && unknownNode.Match(out):
		return string(out), nil
	case err != nil:
		return "", c.failure(err, "scontrol", args)
	}
	return string(out), nil
}

// nodeRecord matches a line of scontrol show node. Only the administrator and the node's
// slurmd can write the fields before the end of these; the texts of administrators follow.
var nodeRecord = regexp.MustCompile(`^NodeName=(\S+) .*? State=(\S+) .*? BootTime=\S+ (.*)`)

// parseNodeRecords reads the lines of these nodes; of all, without nodes. A comment can have lines of its own, so a
// node with two lines is not believed.
func parseNodeRecords(text string, nodes []string) (map[string]NodeRecord, error) {
	records, wanted := map[string]NodeRecord{}, map[string]bool{}
	for _, node := range nodes {
		wanted[node] = true
	}
	for line := range strings.Lines(text) {
		f := nodeRecord.FindStringSubmatch(strings.TrimRight(line, " \n"))
		if f == nil || len(nodes) > 0 && !wanted[f[1]] {
			continue
		}
		if _, twice := records[f[1]]; twice {
			return nil, fmt.Errorf("scontrol lists node %s twice: look at the comments of the nodes", f[1])
		}
		records[f[1]] = NodeRecord{Name: f[1], State: stateWords(f[2]), Comment: strings.ReplaceAll(f[3], "Comment=", "Comment= ")}
	}
	return records, nil
}

// stateWords splits MIXED+DRAIN. A mark such as * follows the first word.
func stateWords(state string) (words []string) {
	for word := range strings.SplitSeq(state, "+") {
		words = append(words, strings.TrimRight(word, "*~#!%$@^-"))
	}
	return words
}

// NodeComment returns a node's Comment.
func (c Comments) NodeComment(ctx context.Context, node string) (string, error) {
	end := newMark()
	text, err := c.Run(ctx, "sinfo", slices.Concat(visible, []string{"--Node", "--nodes=" + node, "--Format=nodelist:0|,comment:0" + end})...)
	if err != nil {
		return "", err
	}
	comment, err := parseNodeComment(text, end, node)
	if err != nil {
		return "", fmt.Errorf("comment of node %s: %w", node, err)
	}
	return comment, nil
}

// parseNodeComment reads a node's records, one for each partition, that each end by the mark.
func parseNodeComment(text, end, node string) (string, error) {
	record, _, found := strings.Cut(text, end+"\n")
	name, comment, _ := strings.Cut(record, "|")
	if !found || name != node {
		return "", errors.New("sinfo does not list it: is it in a partition of slurm.conf?")
	}
	return value(comment), nil
}

// SetNodeComment replaces a node's Comment. Only root and SlurmUser may.
func (c Comments) SetNodeComment(ctx context.Context, node, text string) error {
	return c.control(ctx, "update", "nodename="+node, "comment="+text)
}
