package place

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/jobspec"
)

// ErrNoFit matches every [Error].
var ErrNoFit = errors.New("the VFs do not fit")

// An Error names a VF that has no place, and says for each PF why not.
type Error struct {
	VM, VF   int // number of the VM, and of the VF in it; both from 0
	Wants    jobspec.VF
	Beside   int // number of the job's other VFs, which have places
	Reasons  []string
	Possible bool // a longer search might find a placement
}

func (e *Error) Error() string {
	var text strings.Builder
	fmt.Fprintf(&text, "VF %d of VM %d%s has no place", e.VF, e.VM, wants(e.Wants))
	if e.Beside > 0 {
		fmt.Fprintf(&text, " beside %d others of the job", e.Beside)
	}
	fmt.Fprintf(&text, ": %s", strings.Join(e.Reasons, ", "))
	if e.Possible {
		text.WriteString(" (there are too many different minima to try everything; fewer would help)")
	}
	return text.String()
}

// Is reports whether target is [ErrNoFit].
func (e *Error) Is(target error) bool { return target == ErrNoFit }

// wants writes a VF as the user wrote it in --sriov.
func wants(vf jobspec.VF) string {
	var words []string
	add := func(given bool, format string, value any) {
		if given {
			words = append(words, fmt.Sprintf(format, value))
		}
	}
	add(vf.MinMbps > 0, "min=%s", config.Rate(vf.MinMbps))
	add(vf.MaxMbps > 0, "max=%s", config.Rate(vf.MaxMbps))
	add(vf.PF != "", "pf=%s", vf.PF)
	add(vf.NUMA == jobspec.NUMARequire, "numa=%s", vf.NUMA)
	add(vf.Spread, "%s", "spread")
	if words == nil {
		return ""
	}
	return " (" + strings.Join(words, ",") + ")"
}

// explain finds the first request that has no place beside the requests before it.
func explain(free []Free, requests []VFRequest, soft, through bool) error {
	var before []int // the PFs of the requests before it
	last := sort.Search(len(requests)-1, func(i int) bool {
		answer, _ := solve(free, requests[:i+1], soft, goal{any: true, work: explainWork})
		if answer != nil {
			before = answer
		}
		return answer == nil
	})
	r := requests[last]
	e := &Error{VM: r.VM, Wants: r.VF, Beside: last, Possible: !through}
	for _, other := range requests[:last] {
		if other.VM == r.VM {
			e.VF++
		}
	}
	e.Reasons = reasons(free, requests[:last], before, r, soft)
	return e
}

// reasons says for each PF why r has no place there beside the requests before it.
func reasons(free []Free, requests []VFRequest, answer []int, r VFRequest, soft bool) (reasons []string) {
	var names []string
	for pf, f := range free {
		names = append(names, f.PF)
		if r.VF.PF == "" || r.VF.PF == f.PF {
			reasons = append(reasons, f.PF+" "+reason(f, on(pf, requests, answer), r, soft))
		}
	}
	switch {
	case len(free) == 0:
		return []string{"the node has no PF for it"}
	case reasons == nil:
		return []string{fmt.Sprintf("the node's PFs are %s", strings.Join(names, ", "))}
	}
	return reasons
}

// on returns the requests that are placed on a PF.
func on(pf int, requests []VFRequest, answer []int) (there []VFRequest) {
	for i, r := range requests {
		if answer[i] == pf {
			there = append(there, r)
		}
	}
	return there
}

// reason says why r has no place on a PF beside others.
func reason(f Free, others []VFRequest, r VFRequest, soft bool) string {
	left := capacityOf(f)
	for _, other := range others {
		left.mbps -= int64(other.VF.MinMbps)
		left.vfs--
	}
	if why := cmp.Or(refusal(f, r, soft), shortage(left, r)); why != "" {
		return why
	}
	if r.VF.Spread && slices.ContainsFunc(others, func(o VFRequest) bool { return o.VF.Spread && o.VM == r.VM }) {
		return "has another of the VM's VFs that are to be spread"
	}
	return "has room for it, but then not for all others"
}
