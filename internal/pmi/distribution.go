package pmi

import "fmt"

// A Distribution says how a node's tasks are spread over its VMs.
type Distribution string

// Block fills one VM after the other; Cyclic deals the tasks out in turn.
const (
	DistBlock  Distribution = "block"
	DistCyclic Distribution = "cyclic"
)

// ParseDistribution reads "block", "cyclic" or "" (block).
func ParseDistribution(text string) (Distribution, error) {
	switch d := Distribution(text); d {
	case "":
		return DistBlock, nil
	case DistBlock, DistCyclic:
		return d, nil
	}
	return "", fmt.Errorf("%q is not a distribution over VMs: use block or cyclic", text)
}

// VMOf returns the index of the VM that runs a task, among the vms of a node. localID
// (SLURM_LOCALID) is the task's number among the localTasks tasks on the node. Blocks
// differ by one task at most, and the first VMs get the larger ones. This is the only
// rule of distribution: the node agent starts tasks by it, and [Mapping.ToVMs] tells MPI
// about it.
func VMOf(localID, localTasks, vms int, dist Distribution) int {
	if dist == DistCyclic {
		return localID % vms
	}
	size, larger := localTasks/vms, localTasks%vms
	if first := larger * (size + 1); localID >= first {
		return larger + (localID-first)/size
	}
	return localID / (size + 1)
}

// ToVMs returns the mapping by VM for m, the mapping by node. It numbers VMs in the order
// of their first rank: MPI only compares the numbers, and without gaps they make short
// lists.
func (m Mapping) ToVMs(ranks, vmsPerNode int, dist Distribution) Mapping {
	nodes := m.Places(ranks)
	localTasks := map[int]int{}
	for _, node := range nodes {
		localTasks[node]++
	}
	type vm struct{ node, index int }
	number := map[vm]int{}
	nextLocal := map[int]int{}
	places := make([]int, len(nodes))
	for rank, node := range nodes {
		at := vm{node, VMOf(nextLocal[node], localTasks[node], vmsPerNode, dist)}
		nextLocal[node]++
		if _, known := number[at]; !known {
			number[at] = len(number)
		}
		places[rank] = number[at]
	}
	return mappingOf(places)
}
