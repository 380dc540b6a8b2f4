package pmi

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestParseMapping(t *testing.T) {
	tests := map[string]struct {
		value string
		want  Mapping
		bad   bool
	}{
		"one block":                   {value: "(vector,(0,2,4))", want: Mapping{{0, 2, 4}}},
		"two blocks":                  {value: "(vector,(0,1,3),(1,1,1))", want: Mapping{{0, 1, 3}, {1, 1, 1}}},
		"spaces":                      {value: "(vector, (0, 1, 3))", want: Mapping{{0, 1, 3}}},
		"empty":                       {value: "", bad: true},
		"no blocks":                   {value: "(vector)", bad: true},
		"another kind":                {value: "(matrix,(0,1,1))", bad: true},
		"cut off":                     {value: "(vector,(0,1,1", bad: true},
		"words after the block":       {value: "(vector,(0,1,1)x)", bad: true},
		"two numbers":                 {value: "(vector,(0,1))", bad: true},
		"a negative number":           {value: "(vector,(-1,1,1))", bad: true},
		"a number beyond any cluster": {value: "(vector,(0,1,99999999))", bad: true},
		"no ranks on a node":          {value: "(vector,(0,1,0))", bad: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseMapping(tt.value)
			if bad := errors.Is(err, errMapping); bad != tt.bad {
				t.Fatalf("error = %v, want one: %v", err, tt.bad)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("mapping differs (-want +got):\n%s", diff)
			}
		})
	}
}

func TestToVMs(t *testing.T) {
	tests := map[string]struct {
		byNode string
		ranks  int
		vms    int
		dist   Distribution
		want   string
	}{
		"one VM per node changes nothing":     {"(vector,(0,2,4))", 8, 1, DistBlock, "(vector,(0,2,4))"},
		"blocks are split evenly":             {"(vector,(0,2,4))", 8, 2, DistBlock, "(vector,(0,4,2))"},
		"the first VM gets the odd rank":      {"(vector,(0,2,3))", 6, 2, DistBlock, "(vector,(0,1,2),(1,1,1),(2,1,2),(3,1,1))"},
		"ranks are dealt out":                 {"(vector,(0,2,4))", 8, 2, DistCyclic, "(vector,(0,2,1),(0,4,1),(2,2,1))"},
		"nodes of different size":             {"(vector,(0,1,3),(1,1,1))", 4, 2, DistBlock, "(vector,(0,1,2),(1,2,1))"},
		"fewer ranks than VMs leave no gaps":  {"(vector,(0,2,1))", 2, 4, DistBlock, "(vector,(0,2,1))"},
		"nodes in turn, VMs by block":         {"(vector,(0,2,1),(0,2,1))", 4, 2, DistBlock, "(vector,(0,4,1))"},
		"nodes in turn, eight ranks":          {"(vector,(0,2,1))", 8, 2, DistBlock, "(vector,(0,2,1),(0,4,1),(2,2,1))"},
		"arbitrary: a node each, a VM each":   {"(vector,(0,5,1))", 5, 2, DistBlock, "(vector,(0,5,1))"},
		"a mapping that starts again on wrap": {"(vector,(0,2,2))", 8, 2, DistBlock, "(vector,(0,4,2))"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			byNode, err := ParseMapping(tt.byNode)
			if err != nil {
				t.Fatal(err)
			}
			got := byNode.ToVMs(tt.ranks, tt.vms, tt.dist)
			if got.String() != tt.want {
				t.Errorf("by VM: %s, want %s", got, tt.want)
			}
		})
	}
}

func TestWrapped(t *testing.T) {
	cyclic := Mapping{{0, 100, 1}}
	long := mappingOf(cyclic.Places(100 * 120))
	if n := len(long.String()); n <= maxValue {
		t.Fatalf("the plain list has %d characters: not a test of wrapping", n)
	}
	got := long.Wrapped(100 * 120)
	if diff := cmp.Diff(cyclic, got); diff != "" {
		t.Errorf("wrapped mapping differs (-want +got):\n%s", diff)
	}
	uneven := Mapping{{0, 1, 2}, {1, 1, 1}}
	if diff := cmp.Diff(uneven, uneven.Wrapped(3)); diff != "" {
		t.Errorf("a mapping that cannot wrap changed (-want +got):\n%s", diff)
	}
}

func TestVMOf(t *testing.T) {
	tests := map[string]struct {
		tasks, vms int
		dist       Distribution
		want       string // the VM of each task
	}{
		"block, even":           {6, 3, DistBlock, "001122"},
		"block, one more":       {7, 3, DistBlock, "0001122"},
		"block, two more":       {8, 3, DistBlock, "00011122"},
		"block, fewer than VMs": {2, 3, DistBlock, "01"},
		"cyclic":                {7, 3, DistCyclic, "0120120"},
		"one VM":                {3, 1, DistBlock, "000"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			var got strings.Builder
			for id := range tt.tasks {
				got.WriteByte(byte('0' + VMOf(id, tt.tasks, tt.vms, tt.dist)))
			}
			if got.String() != tt.want {
				t.Errorf("VMs of %d tasks = %s, want %s", tt.tasks, &got, tt.want)
			}
		})
	}
}

func TestParseDistribution(t *testing.T) {
	tests := map[string]struct {
		text string
		want Distribution
		bad  bool
	}{
		"nothing means block": {"", DistBlock, false},
		"block":               {"block", DistBlock, false},
		"cyclic":              {"cyclic", DistCyclic, false},
		"another word":        {"plane", "", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := ParseDistribution(tt.text)
			if got != tt.want || (err != nil) != tt.bad {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

// A mapping equals what its text reads back as, and its shortest form gives the same
// places.
func FuzzMapping(f *testing.F) {
	f.Add("(vector,(0,2,4))", uint16(8), uint8(2), false)
	f.Add("(vector,(0,1,3),(1,1,1))", uint16(4), uint8(3), true)
	f.Add("(vector,(0,2,1),(0,2,1))", uint16(9), uint8(1), false)
	f.Fuzz(func(t *testing.T, value string, ranks uint16, vms uint8, cyclic bool) {
		m, err := ParseMapping(value)
		if err != nil || vms == 0 {
			return
		}
		n := int(ranks)
		again, err := ParseMapping(m.String())
		if err != nil || !cmp.Equal(m, again) {
			t.Fatalf("%q reads back as %v, %v", m, again, err)
		}
		dist := DistBlock
		if cyclic {
			dist = DistCyclic
		}
		byVM := m.ToVMs(n, int(vms), dist)
		if got := byVM.Wrapped(n).Places(n); !cmp.Equal(byVM.Places(n), got) {
			t.Fatalf("wrapping %v changes the places", byVM)
		}
		sameVMSameNode(t, m.Places(n), byVM.Places(n), int(vms))
	})
}

// sameVMSameNode checks that ranks share a VM only where they share a node and
// that no node has more than vms VMs.
func sameVMSameNode(t *testing.T, nodes, places []int, vms int) {
	t.Helper()
	nodeOf, vmsOf := map[int]int{}, map[int]map[int]bool{}
	for rank, vm := range places {
		if node, seen := nodeOf[vm]; seen && node != nodes[rank] {
			t.Fatalf("VM %d is on nodes %d and %d", vm, node, nodes[rank])
		}
		nodeOf[vm] = nodes[rank]
		if vmsOf[nodes[rank]] == nil {
			vmsOf[nodes[rank]] = map[int]bool{}
		}
		vmsOf[nodes[rank]][vm] = true
		if len(vmsOf[nodes[rank]]) > vms {
			t.Fatalf("node %d has more than %d VMs", nodes[rank], vms)
		}
	}
}
