package serve

import (
	"cmp"
	"slices"
)

// spread decides which VM of a node gets each share of a run's tasks on it. Tasks of
// several runs should share vCPUs only where there are too few. So the larger shares go to
// the VMs where other runs have the fewest tasks (loads). spread returns the VM of each
// share, and how many tasks each VM gets.
//
// [pmi.VMOf] decides which tasks form a share. MPI learns from it which ranks share a VM,
// for every node of the job, without knowing what else runs there. So a node may only
// choose which VM gets which share. The first shares are the larger ones.
func spread(tasks int, loads []int) (vm, gets []int) {
	for i := range loads {
		vm = append(vm, i)
	}
	slices.SortStableFunc(vm, func(a, b int) int { return cmp.Compare(loads[a], loads[b]) })
	gets = make([]int, len(loads))
	for share, v := range vm {
		gets[v] = tasks / len(loads)
		if share < tasks%len(loads) {
			gets[v]++
		}
	}
	return vm, gets
}
