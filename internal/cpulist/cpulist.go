// Package cpulist reads and writes the kernel's lists of CPUs and NUMA nodes: "0-3,8".
package cpulist

import (
	"os"
	"slices"
	"strconv"
	"strings"
)

// Format returns the list of cpus in ascending order.
func Format(cpus []int) string {
	cpus = slices.Sorted(slices.Values(cpus))
	var ranges []string
	for i := 0; i < len(cpus); {
		end := i
		for end+1 < len(cpus) && cpus[end+1] == cpus[end]+1 {
			end++
		}
		one := strconv.Itoa(cpus[i])
		if end > i {
			one += "-" + strconv.Itoa(cpus[end])
		}
		ranges = append(ranges, one)
		i = end + 1
	}
	return strings.Join(ranges, ",")
}

// Parse returns the numbers of a list. It skips parts that are neither a number nor a
// range.
func Parse(list string) (all []int) {
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, errTo := strconv.Atoi(last)
		for ; err == nil && errTo == nil && from <= to; from++ {
			all = append(all, from)
		}
	}
	return all
}

// Read returns the numbers of the list in a file; none if the file does not exist.
func Read(file string) []int {
	text, _ := os.ReadFile(file)
	return Parse(strings.TrimSpace(string(text)))
}
