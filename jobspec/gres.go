package jobspec

import (
	"fmt"
	"slices"
	"strings"
)

// The names by which Slurm counts VFs and their bandwidth in Mb/s. It reads k, m,
// g, t and p behind a number as powers of 1024, so a rate is never given to it
// with a suffix.
const (
	GRESVF   = "vf"
	GRESVFBW = "vfbw"
)

// gres returns what to ask Slurm for, such as "vf:4,vfbw:80000", with the other
// items of a list that the user has already.
func (r Resources) gres(others ...string) string {
	items := slices.Concat(others, []string{fmt.Sprintf("%s:%d", GRESVF, r.VFsPerNode)})
	if r.VFMbpsPerNode > 0 {
		items = append(items, fmt.Sprintf("%s:%d", GRESVFBW, r.VFMbpsPerNode))
	}
	return strings.Join(items, ",")
}
