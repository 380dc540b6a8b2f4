package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// owned matches what a job owns on some of its nodes, in the details of scontrol
// show job.
var owned = regexp.MustCompile(`\bNodes=(\S+) CPU_IDs=([0-9,-]*) Mem=([0-9]+)\b(?: GRES=(\S*))?`)

// An allocation is what a job owns on one node.
type allocation struct {
	cpus   int
	mib    int64
	vfs    int    // of gres/vf
	vfMbps uint32 // of gres/vfbw
}

// askAllocation asks slurmctld what the job of that name (see askRecord) owns on node.
func askAllocation(ctx context.Context, name, node string) (allocation, error) {
	text, err := askSlurm(ctx, "scontrol", "--oneliner", "--details", "show", "job", name)
	if err != nil {
		return allocation{}, err
	}
	return allocationOn(text, node, func(list string) ([]string, error) { return hostNames(ctx, list) })
}

// allocationOn reads what a job owns on node. expand turns a list such as n[1-4]
// into names.
//
// Other fields of that text, such as the job's name, are the user's to write. So
// it counts only if it says one thing about the node.
func allocationOn(text, node string, expand func(string) ([]string, error)) (a allocation, err error) {
	times := 0
	for _, found := range owned.FindAllStringSubmatch(text, -1) {
		names, err := expand(found[1])
		if err != nil {
			return allocation{}, err
		}
		for _, name := range names {
			if name != node {
				continue
			}
			times++
			if a, err = readAllocation(found[2], found[3], found[4]); err != nil {
				return allocation{}, err
			}
		}
	}
	if times != 1 {
		return allocation{}, fmt.Errorf("scontrol says %d times what the job owns on node %s, instead of once", times, node)
	}
	return a, nil
}

func readAllocation(cpus, mib, gres string) (a allocation, err error) {
	if a.cpus, err = countIDs(cpus); err != nil {
		return a, err
	}
	if a.mib, err = strconv.ParseInt(mib, 10, 64); err != nil {
		return a, err
	}
	a.vfs, a.vfMbps = int(countGRES(gres, "vf")), countGRES(gres, "vfbw")
	return a, nil
}

// gresCount matches one GRES of a node as Slurm writes it: with the devices
// that were chosen, vf:2(IDX:0-1), or as a number only, vf(CNT:2) or vf:2.
var gresCount = regexp.MustCompile(`^([^:(]+)(?::[^:(0-9][^:(]*)?(?::([0-9]+))?(?:\((?:CNT:([0-9]+)|[^)]*)\))?$`)

// countGRES adds up what a list such as "gpu:2(IDX:0,3),vf(CNT:2)" says of name.
func countGRES(list, name string) (sum uint32) {
	for _, item := range splitGRES(list) {
		found := gresCount.FindStringSubmatch(item)
		if found == nil || found[1] != name {
			continue
		}
		n, err := strconv.ParseUint(found[2]+found[3], 10, 32)
		if err == nil && (found[2] == "" || found[3] == "") {
			sum += uint32(n)
		}
	}
	return sum
}

// splitGRES splits at the commas outside of parentheses.
func splitGRES(list string) []string {
	depth := 0
	return strings.FieldsFunc(list, func(r rune) bool {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		}
		return r == ',' && depth == 0
	})
}

// countIDs counts a list such as 0-3,8.
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
