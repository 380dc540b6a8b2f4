package slurm

import (
	"regexp"
	"strconv"
	"strings"
)

// Generic resources (GRES) have three forms: users ask for them as "gpu:tesla:2,vf:4" or
// "gres/vf=4"; squeue lists what a job has asked for as "gres:vf:4" or "gres/vf:4";
// scontrol lists what a job owns on a node as "gpu:2(IDX:0,3),vf(CNT:4)".

// GRESItems splits a list of requested GRES.
func GRESItems(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

// GRESName returns the name in an item of such a list: "gpu" for "gpu:tesla:2".
func GRESName(item string) string {
	item = strings.TrimPrefix(strings.TrimPrefix(item, "gres:"), "gres/")
	name, _, _ := strings.Cut(strings.ReplaceAll(item, "=", ":"), ":")
	return name
}

// RequestedGRES returns how many of the GRES called name a list requests.
func RequestedGRES(list, name string) int64 {
	var sum int64
	for _, item := range GRESItems(list) {
		if GRESName(item) == name {
			sum += itemCount(item)
		}
	}
	return sum
}

// plenty is more than any job needs, and small enough that a whole command line of such
// numbers can be added up.
const plenty = 1 << 44

// itemCount reads the number at the end of an item as Slurm does; without a number it is
// 1. A suffix k, m, g, t or p is a power of 1024.
func itemCount(item string) int64 {
	number := item[strings.LastIndexAny(item, ":=")+1:]
	shift := 0
	if last := len(number) - 1; last > 0 {
		if i := strings.IndexByte("kmgtp", number[last]|0x20); i >= 0 {
			number, shift = number[:last], 10*(i+1)
		}
	}
	n, err := strconv.ParseInt(number, 10, 64)
	switch {
	case err != nil || n < 0:
		return 1
	case n > plenty>>shift:
		return plenty
	}
	return n << shift
}

// gresCount matches one GRES of a node in the forms that Slurm writes: with the chosen
// devices, vf:2(IDX:0-1), or with a count only, vf(CNT:2) or vf:2.
var gresCount = regexp.MustCompile(`^([^:(]+)(?::[^:(0-9][^:(]*)?(?::([0-9]+))?(?:\((?:CNT:([0-9]+)|[^)]*)\))?$`)

// countGRES adds up the counts for name in a list such as "gpu:2(IDX:0,3),vf(CNT:2)".
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
