package jobspec

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// The names by which Slurm counts VFs and their bandwidth in Mb/s. It reads k, m,
// g, t and p behind a number as powers of 1024, so a rate is never given to it
// with a suffix.
const (
	gresVF   = "vf"
	gresVFBW = "vfbw"
)

// plenty is more than any job needs, and so small that a command line full of it
// can be added up.
const plenty = 1 << 44

// gres returns what to ask Slurm for, such as "vf:4,vfbw:80000", with the other
// items of a list that the user has already.
func (r Resources) gres(others ...string) string {
	items := slices.Concat(others, []string{fmt.Sprintf("%s:%d", gresVF, r.VFsPerNode)})
	if r.VFMbpsPerNode > 0 {
		items = append(items, fmt.Sprintf("%s:%d", gresVFBW, r.VFMbpsPerNode))
	}
	return strings.Join(items, ",")
}

// gresItems splits the value of --gres.
func gresItems(list string) []string {
	return strings.FieldsFunc(list, func(r rune) bool { return r == ',' })
}

// gresName returns what an item such as "gpu:tesla:2" or "gres/vf=4" asks for.
func gresName(item string) string {
	item = strings.TrimPrefix(strings.TrimPrefix(item, "gres:"), "gres/")
	name, _, _ := strings.Cut(strings.ReplaceAll(item, "=", ":"), ":")
	return name
}

// gresCount returns how many of name a value of --gres asks for.
func gresCount(list, name string) int64 {
	var sum int64
	for _, item := range gresItems(list) {
		if gresName(item) == name {
			sum += itemCount(item)
		}
	}
	return sum
}

// itemCount reads the number that ends an item as Slurm does; without one it is 1.
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
