package report

import (
	"slices"
	"time"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

// A lane is one line of the picture. A VM has one lane. A node has as many lanes as it
// has overlapping stages.
type lane struct {
	label  string // "" in the further lanes of a node
	node   string
	vm     string            // "" in the lanes of a node, with the stages that its VMs share
	stages []nodeagent.Stage // in order, without overlaps
	offset time.Duration     // from the zero of the picture to the zero of the stages
	failed bool              // the VM did not become ready
}

// lanes puts each node above its VMs.
func lanes(nodes []nodeagent.NodeVMs) []lane {
	var all []lane
	zero := firstRequest(nodes)
	for _, n := range nodes {
		offset := n.Began.Sub(zero)
		for i, stages := range apart(n.Stages) {
			l := lane{node: n.Node, stages: stages, offset: offset}
			if i == 0 {
				l.label = n.Node
			}
			all = append(all, l)
		}
		for _, vm := range n.VMs {
			all = append(all, lane{vm.Name, n.Node, vm.Name, vm.Stages, offset, vm.State == "failed"})
		}
	}
	return all
}

// visible is the least duration of a shared stage that is drawn.
const visible = time.Millisecond

// apart spreads stages, ordered by their begin, over as few lanes as they need.
func apart(stages []nodeagent.Stage) (spread [][]nodeagent.Stage) {
	for _, s := range stages {
		if s.End-s.Start < visible {
			continue
		}
		free := slices.IndexFunc(spread, func(lane []nodeagent.Stage) bool { return lane[len(lane)-1].End <= s.Start })
		if free < 0 {
			free, spread = len(spread), append(spread, nil)
		}
		spread[free] = append(spread[free], s)
	}
	return spread
}
