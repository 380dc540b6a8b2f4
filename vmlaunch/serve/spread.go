package serve

import (
	"cmp"
	"slices"
)

// spread decides which VM of a node gets each share of a run's tasks there, so that
// tasks of several runs share vCPUs only where there are too few: the larger shares
// go to the VMs where other runs have the fewest tasks (loads). It returns the VM of
// each share, and how many tasks each VM gets.
//
// Which tasks are a share is not decided here: [pmi.VMOf] says that, and MPI is told
// by it which ranks are in one VM on every node of the job, without knowing what else
// runs there. So a node is free only to choose the VMs of the shares, the first of
// which are the larger ones.
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
