package slurm

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Generic resources (GRES) are written in three ways: as users ask for them
// ("gpu:tesla:2,vf:4", also "gres/vf=4"), as squeue lists what a job has asked for
// ("gres:vf:4", "gres/vf:4"), and as scontrol tells what it owns on a node
// ("gpu:2(IDX:0,3),vf(CNT:4)").

// GRESItems splits a list of GRES that are asked for.
func GRESItems(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

// GRESName returns what an item of such a list asks for: "gpu" of "gpu:tesla:2".
func GRESName(item string) string {
	item = strings.TrimPrefix(strings.TrimPrefix(item, "gres:"), "gres/")
	name, _, _ := strings.Cut(strings.ReplaceAll(item, "=", ":"), ":")
	return name
}

// AsksForGRES reports whether a list asks for some of name.
func AsksForGRES(list, name string) bool {
	return slices.ContainsFunc(GRESItems(list), func(item string) bool { return GRESName(item) == name })
}

// RequestedGRES returns how many of name a list asks for.
func RequestedGRES(list, name string) int64 {
	var sum int64
	for _, item := range GRESItems(list) {
		if GRESName(item) == name {
			sum += itemCount(item)
		}
	}
	return sum
}

// plenty is more than any job needs, and so small that a command line full of it
// can be added up.
const plenty = 1 << 44

// itemCount reads the number that ends an item as Slurm does; without one it is 1.
// Slurm reads k, m, g, t and p behind it as powers of 1024.
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
