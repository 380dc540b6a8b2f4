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
// That is bin packing, for which no algorithm is fast in all cases. So the search is
// bounded; [Place] says what that costs.
package place

import "github.com/slurm-v/slurm-v/jobspec"

// A VFRequest is one VF that a VM asks for. [Place] reads VM, NUMA and VF; Index, MAC and the
// GUIDs are for the lease and the settings of the VF that the request gets.
type VFRequest struct {
	VM    int // on the node
	Index int // among the VFs of the VM
	NUMA  int // node of the VM's CPUs; -1 if they have none or several
	MAC   string
	VF    jobspec.VF

	NodeGUID, PortGUID string // of a VF on InfiniBand, "02:50:00:01:07:90:00:81"; "" leaves them
}

// Free is what a PF has left.
type Free struct {
	PF      string
	NUMA    int    // -1 where there are no NUMA nodes
	Mbps    uint32 // that minima may use: without those of leases and the reserve for the host
	VFs     int
	MinRate bool // its driver can set a minimum
	MaxRate bool // its driver can set a maximum
}

// Limits of a search: for finding a placement (maxWork), for finding a better one
// (moreWork), and for explaining why there is none (explainWork). The unit of work is one
// PF that a bound looks at, some 50 ns.
const (
	maxWork     = 2_000_000
	moreWork    = 20_000
	explainWork = 50_000
)

// Place returns for each request the index of its PF in free. If they do not all
// fit, the error is an [*Error], which matches [ErrNoFit]. With soft, a driver
// need not be able to set what is asked for; minima are accounted all the same.
//
// Place counts VFs of one kind and does not tell them apart. So the number of different
// minima in the job makes the search long, not the number of VMs. With up to three minima
// Place finds the best placement. With more it may miss the best one. With a dozen that
// nearly fill the PFs it may find no placement though one exists; the error then says so.
func Place(free []Free, requests []VFRequest, soft bool) ([]int, error) {
	answer, through := solve(free, requests, soft, goal{work: maxWork})
	if answer == nil {
		return nil, explain(free, requests, soft, through)
	}
	return answer, nil
}

// solve returns a placement, or nil. If the search was cut short (through is false),
// there may be a better one.
func solve(free []Free, requests []VFRequest, soft bool, g goal) (answer []int, through bool) {
	w := wishesOf(free, requests, soft)
	strict, differs := w.allNear()
	answer, through = strict.place(g)
	if answer != nil || !differs {
		return answer, through // a placement with far VFs cannot be better
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

// place first searches where good placements are likely. If that takes too long, it
// searches for any placement. Of equally good placements it returns the first: which of
// them a search meets first depends on chance.
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
