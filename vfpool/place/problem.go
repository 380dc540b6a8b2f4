package place

import (
	"cmp"
	"fmt"
	"slices"
)

// A problem is what a search works on: how many requests of each class go to each PF.
//
// Interchangeable requests form a class. There are few classes, since all VMs of a job
// ask for the same. Requests to be spread differ by their VM. But if a group of VMs asks
// for the same, counting suffices for them, too: if no PF has more of the group's
// requests than the group has VMs, the requests can be dealt out so that no VM has a PF
// twice (see [problem.spreadOut]).
type problem struct {
	pfs        []capacity
	kinds      []int // of each PF; all classes fit equally well on PFs of one kind
	classes    []class
	classOf    []int     // the class of each request
	groups     [][][]int // of each group its VMs, of each VM its requests to be spread
	bySize     []int     // classes, the largest minimum first
	sums       []sums    // of classes[i:]
	areas      []area
	vicinities []area
}

// An area is a set of PFs outside of which its classes cannot go, or are far.
type area struct{ pfs, classes []int }

// A class is a set of interchangeable requests.
type class struct {
	identity
	pfs      []int // that it may go to
	requests []int
}

func newProblem(w wishes) *problem {
	p := &problem{}
	for _, pf := range w.pfs {
		p.pfs = append(p.pfs, capacity{pf.mbps, min(pf.vfs, len(w.ids))})
	}
	ids := slices.Clone(w.ids)
	p.group(ids, w.vms)
	p.classify(ids)
	p.compare()
	p.survey()
	p.sums = p.sumsFrom()
	return p
}

// group finds the VMs that ask for the same VFs to be spread.
func (p *problem) group(ids []identity, vms []int) {
	known := map[string]int{}
	for _, vm := range spreadByVM(vms) {
		var wants []string
		for _, i := range vm {
			wants = append(wants, fmt.Sprintf("%d %q", ids[i].mbps, ids[i].fits))
		}
		slices.Sort(wants)
		group := number(known, fmt.Sprint(wants))
		if group == len(p.groups) {
			p.groups = append(p.groups, nil)
		}
		p.groups[group] = append(p.groups[group], vm)
		for _, i := range vm {
			ids[i].group = group
		}
	}
}

// spreadByVM returns, by VM, the requests that are to be spread. A VM with a single such
// request has nothing to spread and is left out.
func spreadByVM(vms []int) (requests [][]int) {
	for i, vm := range vms {
		for vm >= len(requests) {
			requests = append(requests, nil)
		}
		if vm >= 0 {
			requests[vm] = append(requests[vm], i)
		}
	}
	return slices.DeleteFunc(requests, func(vm []int) bool { return len(vm) < 2 })
}

// number returns the number of thing, and gives it the next one if it is new.
func number[T comparable](known map[T]int, thing T) int {
	if _, ok := known[thing]; !ok {
		known[thing] = len(known)
	}
	return known[thing]
}

// classify makes the classes. Classes with a single PF come first and then the largest
// minima: the small ones find room between them.
func (p *problem) classify(ids []identity) {
	known := map[identity]int{}
	for i, id := range ids {
		at := number(known, id)
		if at == len(p.classes) {
			p.classes = append(p.classes, class{identity: id, pfs: id.at(far)})
		}
		p.classes[at].requests = append(p.classes[at].requests, i)
	}
	slices.SortStableFunc(p.classes, func(a, b class) int {
		return cmp.Or(cmp.Compare(min(len(a.pfs), 2), min(len(b.pfs), 2)),
			cmp.Compare(b.mbps, a.mbps), cmp.Compare(len(a.pfs), len(b.pfs)))
	})
	for i := range p.classes {
		p.bySize = append(p.bySize, i)
	}
	slices.SortStableFunc(p.bySize, func(a, b int) int { return cmp.Compare(p.classes[b].mbps, p.classes[a].mbps) })
	p.classOf = make([]int, len(ids))
	for i, c := range p.classes {
		for _, request := range c.requests {
			p.classOf[request] = i
		}
	}
}

// compare numbers the kinds of PFs.
func (p *problem) compare() {
	known := map[string]int{}
	for pf := range p.pfs {
		var fits []byte
		for _, c := range p.classes {
			fits = append(fits, c.fits[pf])
		}
		p.kinds = append(p.kinds, number(known, string(fits)))
	}
}

// survey finds the areas, each with all classes that cannot leave it, and the vicinities:
// the PFs near to classes that may also go far.
func (p *problem) survey() {
	for i, c := range p.classes {
		p.areas = include(p.areas, c.pfs, -1)
		if close := c.at(near); len(close) < len(c.pfs) {
			p.vicinities = include(p.vicinities, close, i)
		}
	}
	for i := range p.areas {
		for j, c := range p.classes {
			if !slices.ContainsFunc(c.pfs, func(pf int) bool { return !slices.Contains(p.areas[i].pfs, pf) }) {
				p.areas[i].classes = append(p.areas[i].classes, j)
			}
		}
	}
}

// include adds a class to the area of exactly these PFs. Class -1 only makes the area.
func include(areas []area, pfs []int, class int) []area {
	at := slices.IndexFunc(areas, func(a area) bool { return slices.Equal(a.pfs, pfs) })
	if at < 0 {
		at = len(areas)
		areas = append(areas, area{pfs: pfs})
	}
	if class >= 0 {
		areas[at].classes = append(areas[at].classes, class)
	}
	return areas
}
