package vmstep

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

// An Assembly joins the nodes' lists of VMs into the map of the job's VMs.
type Assembly struct {
	nodes int
	all   []nodeagent.NodeVMs
	owner map[string]string // the node or VM that has a name, rank, number or address
}

// NewAssembly returns the assembly of a job with so many nodes.
func NewAssembly(nodes int) *Assembly {
	return &Assembly{nodes: nodes, owner: map[string]string{}}
}

// Add adds the VMs of one node. Two nodes must not have the same rank, VM or address:
// programs would find the wrong VM under a name.
func (a *Assembly) Add(n nodeagent.NodeVMs) error {
	if n.Rank < 0 || n.Rank >= a.nodes {
		return fmt.Errorf("node %s says it is number %d of %d nodes", n.Node, n.Rank, a.nodes)
	}
	node := "node " + n.Node
	if err := a.take(node, node, "rank "+strconv.Itoa(n.Rank)); err != nil {
		return err
	}
	for _, vm := range n.VMs {
		keys := []string{"number " + strconv.Itoa(vm.Number), "name " + vm.Name}
		if vm.Address != "" {
			keys = append(keys, "address "+vm.Address)
		}
		if err := a.take(vm.Name+" of "+node, keys...); err != nil {
			return err
		}
	}
	a.all = append(a.all, withoutStages(n))
	return nil
}

func (a *Assembly) take(owner string, keys ...string) error {
	for _, key := range keys {
		if other, taken := a.owner[key]; taken {
			return fmt.Errorf("%s and %s both have %s", other, owner, key)
		}
		a.owner[key] = owner
	}
	return nil
}

// withoutStages leaves out the stages, which other nodes do not need.
func withoutStages(n nodeagent.NodeVMs) nodeagent.NodeVMs {
	n.Stages, n.VMs = nil, slices.Clone(n.VMs)
	for i := range n.VMs {
		n.VMs[i].Stages = nil
	}
	return n
}

// Complete reports whether every node was added.
func (a *Assembly) Complete() bool { return len(a.all) == a.nodes }

// Map returns the nodes in the order of their ranks.
func (a *Assembly) Map() []nodeagent.NodeVMs {
	all := slices.Clone(a.all)
	slices.SortFunc(all, func(x, y nodeagent.NodeVMs) int { return x.Rank - y.Rank })
	return all
}

// countVMs returns how many VMs the nodes have together.
func countVMs(nodes []nodeagent.NodeVMs) int {
	n := 0
	for _, node := range nodes {
		n += len(node.VMs)
	}
	return n
}
