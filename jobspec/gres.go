package jobspec

import (
	"fmt"
	"slices"
	"strings"
)

// Slurm's names for VFs and their bandwidth in Mb/s. Slurm reads k, m, g, t and p behind
// a number as powers of 1024, so rates are written to it without a suffix.
const (
	GRESVF   = "vf"
	GRESVFBW = "vfbw"
)

// gres returns a request to Slurm, such as "vf:4,vfbw:80000", joined with the other items
// of the user's own request.
func (r Resources) gres(others ...string) string {
	items := slices.Concat(others, []string{fmt.Sprintf("%s:%d", GRESVF, r.VFsPerNode)})
	if r.VFMbpsPerNode > 0 {
		items = append(items, fmt.Sprintf("%s:%d", GRESVFBW, r.VFMbpsPerNode))
	}
	return strings.Join(items, ",")
}
