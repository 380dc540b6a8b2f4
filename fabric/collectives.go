package fabric

import "slices"

// PlanCollectives returns how many multicast addresses each job can have: of total ones, on a system
// with this many nodes, if jobs of minNodes nodes or more have them and jobsPerNode jobs
// share a node. It is HPE's recommendation, (M / (S / s)) / j, rounded down; for M = 4086,
// S = 11136, s = 64 and j = 1 it is 23. It is 0 if a number is not positive, and total if
// one job has the whole system.
func PlanCollectives(total, systemNodes, minNodes, jobsPerNode int) int {
	if slices.Min([]int{total, systemNodes, minNodes, jobsPerNode}) < 1 {
		return 0
	}
	minNodes = min(minNodes, systemNodes)
	return total * minNodes / (systemNodes * jobsPerNode)
}
