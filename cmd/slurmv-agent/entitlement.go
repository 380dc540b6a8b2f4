package main

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// allocation matches what a job owns on some of its nodes, in the details of
// scontrol show job.
var allocation = regexp.MustCompile(`\bNodes=(\S+) CPU_IDs=([0-9,-]*) Mem=([0-9]+)\b`)

// entitlement returns the CPUs and the MiB of memory that a job owns on node.
// expand turns a list such as n[1-4] into names.
//
// Other fields of that text, such as the job's name, are the user's to write. So
// it counts only if it says one thing about the node.
func entitlement(text, node string, expand func(string) ([]string, error)) (cpus int, mib int64, err error) {
	times := 0
	for _, found := range allocation.FindAllStringSubmatch(text, -1) {
		names, err := expand(found[1])
		if err != nil {
			return 0, 0, err
		}
		for _, name := range names {
			if name != node {
				continue
			}
			times++
			if cpus, err = countIDs(found[2]); err != nil {
				return 0, 0, err
			}
			if mib, err = strconv.ParseInt(found[3], 10, 64); err != nil {
				return 0, 0, err
			}
		}
	}
	if times != 1 {
		return 0, 0, fmt.Errorf("scontrol says %d times what the job owns on node %s, instead of once", times, node)
	}
	return cpus, mib, nil
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
