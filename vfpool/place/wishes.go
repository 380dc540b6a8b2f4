package place

import (
	"slices"
	"strings"
)

// wishes is the input of Place, reduced to what matters.
type wishes struct {
	pfs []capacity
	ids []identity // of the requests
	vms []int      // the VM of each request that is to be spread, numbered from 0; -1 for the rest
}

// An identity is all that the search knows of a request. Its group is found later.
type identity struct {
	mbps  int64
	fits  string // a fit per PF
	group int    // number of its group of VMs; -1 if the request is not to be spread
}

func (id identity) fit(pf int) fit { return fit(id.fits[pf]) }

// at returns the PFs whose fit is most or better.
func (id identity) at(most fit) []int {
	var pfs []int
	for pf := range len(id.fits) {
		if id.fit(pf) <= most {
			pfs = append(pfs, pf)
		}
	}
	return pfs
}

func wishesOf(free []Free, requests []VFRequest, soft bool) wishes {
	var w wishes
	for _, f := range free {
		w.pfs = append(w.pfs, capacityOf(f))
	}
	known := map[int]int{}
	for _, r := range requests {
		w.ids = append(w.ids, identity{mbps: int64(r.VF.MinMbps), fits: fitsOf(free, r, soft), group: -1})
		vm := -1
		if r.VF.Spread {
			vm = number(known, r.VM)
		}
		w.vms = append(w.vms, vm)
	}
	return w
}

// fitsOf returns how well a request fits each PF. If all PFs are far from its VM, all
// count as near.
func fitsOf(free []Free, r VFRequest, soft bool) string {
	var fits []byte
	for _, f := range free {
		fits = append(fits, byte(fitOf(f, r, soft)))
	}
	if id := (identity{fits: string(fits)}); len(id.at(near)) == 0 {
		return replace(id.fits, far, near)
	}
	return string(fits)
}

func replace(fits string, old, by fit) string {
	return strings.ReplaceAll(fits, string(rune(old)), string(rune(by)))
}

// allNear returns wishes in which no PF far from a VM is allowed.
func (w wishes) allNear() (strict wishes, differs bool) {
	strict = wishes{pfs: w.pfs, vms: w.vms}
	for _, id := range w.ids {
		differs = differs || len(id.at(near)) < len(id.at(far))
		id.fits = replace(id.fits, far, never)
		strict.ids = append(strict.ids, id)
	}
	return strict, differs
}

// A part is a subset of wishes that can be solved alone: no PF can take requests of two
// parts.
type part struct {
	wishes
	pfs      []int // their indices in the whole
	requests []int
}

// parts returns the parts; false if a request has no PF to go to.
func (w wishes) parts() (parts []*part, ok bool) {
	label := w.labels()
	ofLabel := make([]*part, len(w.pfs))
	for pf, l := range label {
		if ofLabel[l] == nil {
			ofLabel[l] = &part{}
			parts = append(parts, ofLabel[l])
		}
		ofLabel[l].pfs = append(ofLabel[l].pfs, pf)
		ofLabel[l].wishes.pfs = append(ofLabel[l].wishes.pfs, w.pfs[pf])
	}
	for i, id := range w.ids {
		pfs := id.at(far)
		if len(pfs) == 0 {
			return nil, false
		}
		ofLabel[label[pfs[0]]].add(i, id, w.vms[i])
	}
	return slices.DeleteFunc(parts, func(p *part) bool { return len(p.requests) == 0 }), true
}

// labels gives the same label to PFs to which the same request can go.
func (w wishes) labels() []int {
	label := make([]int, len(w.pfs))
	for pf := range label {
		label[pf] = pf
	}
	for _, id := range w.ids {
		pfs := id.at(far)
		for _, pf := range pfs {
			if old := label[pf]; old != label[pfs[0]] {
				for other := range label {
					if label[other] == old {
						label[other] = label[pfs[0]]
					}
				}
			}
		}
	}
	return label
}

func (p *part) add(request int, id identity, vm int) {
	var fits []byte
	for _, pf := range p.pfs {
		fits = append(fits, id.fits[pf])
	}
	id.fits = string(fits)
	p.ids, p.vms, p.requests = append(p.ids, id), append(p.vms, vm), append(p.requests, request)
}
