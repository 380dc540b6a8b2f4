package vmstep

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

// nodeVMs returns a node with VMs of these numbers.
func nodeVMs(node string, rank int, numbers ...int) nodeagent.NodeVMs {
	n := nodeagent.NodeVMs{Node: node, Rank: rank}
	for i, number := range numbers {
		name := "vm" + string(rune('0'+number))
		n.VMs = append(n.VMs, nodeagent.VM{Number: number, Index: i, Name: name, Address: "172.30.0." + string(rune('1'+number))})
	}
	return n
}

func TestAssemblyOrdersNodesByRank(t *testing.T) {
	a := NewAssembly(3)
	n0, n1, n2 := nodeVMs("c", 0, 0, 1), nodeVMs("a", 1, 2, 3), nodeVMs("b", 2, 4, 5)
	withStages := n1
	withStages.VMs = append([]nodeagent.VM(nil), n1.VMs...)
	withStages.VMs[0].Stages = []nodeagent.Stage{{Name: "boot", End: 3}}
	for i, n := range []nodeagent.NodeVMs{n2, n0, withStages} {
		if a.Complete() {
			t.Fatalf("complete after %d of 3 nodes", i)
		}
		if err := a.Add(n); err != nil {
			t.Fatal(err)
		}
	}
	if !a.Complete() {
		t.Error("not complete after all nodes")
	}
	if diff := cmp.Diff([]nodeagent.NodeVMs{n0, n1, n2}, a.Map()); diff != "" {
		t.Errorf("map differs (-want +got):\n%s", diff)
	}
	if got := countVMs(a.Map()); got != 6 {
		t.Errorf("%d VMs, want 6", got)
	}
}

func TestAssemblyRefuses(t *testing.T) {
	sameAddress := nodeVMs("n2", 1, 2)
	sameAddress.VMs[0].Address = "172.30.0.1"
	sameName := nodeVMs("n2", 1, 2)
	sameName.VMs[0].Name = "vm0"
	tests := map[string]struct {
		second nodeagent.NodeVMs
		want   string
	}{
		"a node twice":        {nodeVMs("n1", 1, 2), "both have node n1"},
		"a rank twice":        {nodeVMs("n2", 0, 2), "node n1 and node n2 both have rank 0"},
		"a VM twice":          {nodeVMs("n2", 1, 0), "vm0 of node n1 and vm0 of node n2 both have number 0"},
		"an address twice":    {sameAddress, "both have address 172.30.0.1"},
		"a name twice":        {sameName, "both have name vm0"},
		"a rank that is high": {nodeVMs("n2", 2, 2), "number 2 of 2 nodes"},
		"a rank that is low":  {nodeVMs("n2", -1, 2), "number -1 of 2 nodes"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			a := NewAssembly(2)
			if err := a.Add(nodeVMs("n1", 0, 0, 1)); err != nil {
				t.Fatal(err)
			}
			if err := a.Add(tt.second); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want one with %q", err, tt.want)
			}
		})
	}
}
