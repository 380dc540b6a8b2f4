package slurm

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// An Allocation is what a job owns on one node.
type Allocation struct {
	CPUs int
	MiB  int64  // of memory; 0 if Slurm does not manage memory
	gres string // as scontrol writes it
}

// GRES returns how many of the GRES called name the job owns.
func (a Allocation) GRES(name string) uint32 { return countGRES(a.gres, name) }

// Allocation asks slurmctld what a job owns on node. name is that of a [Job].
func (c Client) Allocation(ctx context.Context, name, node string) (Allocation, error) {
	text, err := c.Run(ctx, "scontrol", "--oneliner", "--details", "show", "job", name)
	if err != nil {
		return Allocation{}, err
	}
	return allocationOn(text, node, func(list string) ([]string, error) { return c.Hostnames(ctx, list) })
}

// owned matches, in the details of scontrol show job, what a job owns on some of its
// nodes.
var owned = regexp.MustCompile(`\bNodes=(\S+) CPU_IDs=([0-9,-]*) Mem=([0-9]+)\b(?: GRES=(\S*))?`)

// allocationOn reads what a job owns on node. expand turns a list such as n[1-4] into
// names.
//
// Users write other fields of that text, such as the job's name, and could forge a match
// there. So a text with several matches for the node is an error.
func allocationOn(text, node string, expand func(string) ([]string, error)) (a Allocation, err error) {
	times := 0
	for _, found := range owned.FindAllStringSubmatch(text, -1) {
		names, err := expand(found[1])
		if err != nil {
			return Allocation{}, err
		}
		for _, name := range names {
			if name != node {
				continue
			}
			times++
			if a, err = readAllocation(found[2], found[3], found[4]); err != nil {
				return Allocation{}, err
			}
		}
	}
	if times != 1 {
		return Allocation{}, fmt.Errorf("scontrol says %d times what the job owns on node %s, instead of once", times, node)
	}
	return a, nil
}

func readAllocation(cpus, mib, gres string) (a Allocation, err error) {
	if a.CPUs, err = countIDs(cpus); err != nil {
		return a, err
	}
	a.MiB, err = strconv.ParseInt(mib, 10, 64)
	a.gres = gres
	return a, err
}

// countIDs returns the number of ids in a list such as 0-3,8.
func countIDs(list string) (n int, err error) {
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		a, err1 := strconv.Atoi(first)
		b, err2 := strconv.Atoi(last)
		if err1 != nil || err2 != nil || a > b {
			return 0, fmt.Errorf("%q is not a list of CPUs", list)
		}
		n += b - a + 1
	}
	return n, nil
}
