package vmstep

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Backend says who makes a node's VMs. Each node has its own configuration, so only the keeper can compare.
type Backend struct {
	Type string `json:"type"` // backend.type of the configuration
}

// takeBackend refuses a job whose nodes have different back-ends: OpenStack makes the VMs of all nodes or none, as the job's
// first node asks it. Nodes that wait for it in vain would wait for an hour.
func (s *step) takeBackend(m Message) error {
	var b Backend
	if err := m.Decode(&b); err != nil {
		return err
	}
	s.backends[m.Node] = b.Type
	if len(s.backends) < s.nodes {
		return nil // an error names all nodes
	}
	return checkBackends(s.backends)
}

// checkBackends compares the back-ends of nodes.
func checkBackends(of map[string]string) error {
	nodes := map[string][]string{}
	for _, node := range slices.Sorted(maps.Keys(of)) {
		nodes[of[node]] = append(nodes[of[node]], node)
	}
	if len(nodes) < 2 {
		return nil
	}
	var kinds []string
	for _, kind := range slices.Sorted(maps.Keys(nodes)) {
		kinds = append(kinds, fmt.Sprintf("by %s on %s", kind, strings.Join(nodes[kind], ", ")))
	}
	return fmt.Errorf("VMs are made %s: choose nodes of one kind by --partition, --constraint or --exclude", strings.Join(kinds, " and "))
}
