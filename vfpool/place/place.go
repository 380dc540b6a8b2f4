// Package place decides on which physical functions (PFs) of a node the virtual
// functions (VFs) of a job go.
//
// [Place] is pure: from what is free and what is asked for it computes the PF of
// each VF, always the same one for the same input. It finds a placement if there
// is one. Of several it takes that with
//
//   - the fewest VFs far from their VM's CPUs, then
//   - the largest sum of the squares of the bandwidths that the PFs have left: one
//     large hole serves later jobs better than many small ones, then
//   - the fewest PFs in use by the job, then
//   - most on the PFs that come first.
//
// That is a bin-packing problem, and nobody knows how to solve each of those
// fast, so the search is bounded; see [Place] for what is given up.
package place

import "github.com/slurm-v/slurm-v/jobspec"

// A VFRequest is one VF that a VM asks for. [Place] reads VM, NUMA and VF; Index and MAC
// are for the lease and the settings of the VF that the request gets.
type VFRequest struct {
	VM    int // on the node
	Index int // among the VFs of the VM
	NUMA  int // node of the VM's CPUs; -1 if they have none or several
	MAC   string
	VF    jobspec.VF
}

// Free is what a PF has left.
type Free struct {
	PF      string
	NUMA    int    // -1 where there are no NUMA nodes
	Mbps    uint32 // beyond the minima of leases and what is reserved for the host
	VFs     int
	MinRate bool // its driver can set a minimum
	MaxRate bool // and a maximum
}

// A unit of work is a PF that a bound looks at, some 50 ns. The first limit is
// for finding a placement, the second for finding a better one, the third for
// saying why there is none.
const (
	maxWork     = 2_000_000
	moreWork    = 20_000
	explainWork = 50_000
)

// Place returns for each request the index of its PF in free. If they do not all
// fit, the error is an [*Error], which matches [ErrNoFit]. With soft, a driver
// need not be able to set what is asked for; minima are accounted all the same.
//
// VFs of one kind are counted, not told apart, so what makes the search long is
// not the size of a job but how many different minima its VMs have. With up to
// three it finds the best placement. With more it may miss the best; and with a
// dozen that all but fill the PFs it can happen that it finds none though there is
// one. The error then says so.
func Place(free []Free, requests []VFRequest, soft bool) ([]int, error) {
	answer, through := solve(free, requests, soft, goal{work: maxWork})
	if answer == nil {
		return nil, explain(free, requests, soft, through)
	}
	return answer, nil
}

// solve returns a placement, or nil. If the search was not through, there may be
// a better one.
func solve(free []Free, requests []VFRequest, soft bool, g goal) (answer []int, through bool) {
	w := wishesOf(free, requests, soft)
	strict, differs := w.allNear()
	answer, through = strict.place(g)
	if answer != nil || !differs {
		return answer, through // none with VFs that are far can be better
	}
	answer, searched := w.place(g)
	return answer, searched && (through || answer == nil)
}

// place places the parts one by one.
func (w wishes) place(g goal) (answer []int, through bool) {
	parts, ok := w.parts()
	if !ok {
		return nil, true
	}
	answer, through = make([]int, len(w.ids)), true
	g.work /= max(len(parts), 1)
	for _, part := range parts {
		pfs, searched := newProblem(part.wishes).place(g)
		if pfs == nil {
			return nil, searched
		}
		for i, pf := range pfs {
			answer[part.requests[i]] = part.pfs[pf]
		}
		through = through && searched
	}
	return answer, through
}

// place searches where good placements are, and if that takes too long, where
// others are. Which one of equals that comes across is by chance; it returns the
// first.
func (p *problem) place(g goal) (answer []int, through bool) {
	g.work /= 3
	s := p.search(g)
	for _, way := range []way{dense, even} {
		if !s.found && !s.through() {
			s = p.search(goal{any: true, way: way, work: g.work})
		}
	}
	if !s.found {
		return nil, s.through()
	}
	if !s.goal.any {
		if first := p.search(goal{exactly: &s.value, way: dense, work: moreWork}); first.found {
			return p.deal(first.best), s.through()
		}
	}
	return p.deal(s.best), false
}
