package place

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// A search fills one PF after the other, depth first, each with requests of all classes
// in all possible numbers. It cuts off branches that cannot beat the best placement
// found, and states that it has seen before. A state is the requests still to be placed
// and the PFs left; how the search got there does not matter.
//
// Remembering states does not replace the bounds. Without the bounds, BenchmarkPlace's 8
// VMs with 2 VFs take 53 ms instead of 0.07 ms; 16 different VFs, or 64 VMs with 16, take
// more than 20 s instead of 1 ms.
type search struct {
	*problem
	goal  goal
	pfs   []int   // in the order in which they are filled
	at    []int   // where each PF is in pfs
	later [][]int // how many of each class pfs[i:] can take at most
	alike []bool  // all of pfs[i:] are the same

	left    []capacity // of each PF
	counts  [][]int    // on each PF, of each class
	pending []int      // requests of each class
	exiles  []int      // of each class, requests that must go far, as farAtLeast estimates
	number  int        // of pending requests
	mbps    int64      // sum of the minima of pending requests
	full    value      // of the PFs that are filled; far counts on all PFs
	seen    map[string]value
	work    int // that may still be done

	found bool
	best  [][]int // counts
	value value   // of best
	done  bool

	spans []span // for the bounds, allocated once
	parts []int64
	key   []byte
}

// A goal is what a search looks for: the best placement, any placement, or the first one
// of exactly this value.
type goal struct {
	any     bool
	exactly *value
	way     way
	work    int // after which the search is cut short
}

// A way says how many requests of a class are tried first on a PF.
type way int

const (
	guided way = iota // as many as a good placement is likely to have there
	dense             // as many as possible
	even              // its share by bandwidth, for when VFs and bandwidth are both scarce
)

func (p *problem) search(g goal) *search {
	s := &search{problem: p, goal: g, work: g.work, seen: map[string]value{}}
	s.left, s.exiles = slices.Clone(p.pfs), make([]int, len(p.classes))
	s.counts, s.best = table(len(p.pfs), len(p.classes)), table(len(p.pfs), len(p.classes))
	for _, c := range p.classes {
		s.pending = append(s.pending, len(c.requests))
		s.number += len(c.requests)
		s.mbps += int64(len(c.requests)) * c.mbps
	}
	s.order()
	s.lookAhead()
	s.place(0)
	return s
}

func table(rows, columns int) [][]int {
	t := make([][]int, rows)
	for i := range t {
		t[i] = make([]int, columns)
	}
	return t
}

// through reports whether the search was not cut short.
func (s *search) through() bool { return s.work > 0 }

// order decides in which order PFs are filled: those that have least come first, because
// good placements fill those.
func (s *search) order() {
	for pf := range s.left {
		s.pfs = append(s.pfs, pf)
	}
	if s.goal.exactly == nil {
		slices.SortStableFunc(s.pfs, func(a, b int) int { return cmp.Compare(s.left[a].mbps, s.left[b].mbps) })
	}
	s.at = make([]int, len(s.pfs))
	for i, pf := range s.pfs {
		s.at[pf] = i
	}
}

// lookAhead computes what depends on the order.
func (s *search) lookAhead() {
	s.later, s.alike = table(len(s.pfs)+1, len(s.classes)), make([]bool, len(s.pfs)+1)
	for i := len(s.pfs) - 1; i >= 0; i-- {
		s.alike[i] = i == len(s.pfs)-1 || s.alike[i+1] && s.same(s.pfs[i], s.pfs[i+1])
		for c := range s.classes {
			s.later[i][c] = s.later[i+1][c] + s.most(c, s.pfs[i])
		}
	}
	s.farAtLeast(0, func(class, n int) { s.exiles[class] = n })
}

// same reports whether it makes no difference which of two empty PFs is which.
func (s *search) same(a, b int) bool {
	return s.kinds[a] == s.kinds[b] && s.left[a] == s.left[b]
}

// most returns how many requests of a class a PF can take.
func (s *search) most(class, pf int) int {
	c := s.classes[class]
	if c.fit(pf) == never {
		return 0
	}
	n := s.left[pf].fits(c.mbps)
	if c.group < 0 {
		return n
	}
	free := len(s.groups[c.group])
	for other, on := range s.counts[pf] {
		if s.classes[other].group == c.group {
			free -= on
		}
	}
	return min(n, free)
}

// place places what is pending on pfs[i:].
func (s *search) place(i int) {
	if s.number == 0 {
		s.finish(i)
		return
	}
	if i < len(s.pfs) && s.roomy(i) && s.isNew(i) {
		s.fill(i, 0)
	}
}

// fill puts requests of classes[class:] on pfs[i], and then goes on.
func (s *search) fill(i, class int) {
	for class < len(s.classes) && s.pending[class] == 0 {
		class++
	}
	if class == len(s.classes) {
		s.next(i)
		return
	}
	least, most := s.limits(i, class)
	likely := min(max(s.likely(i, class), least), most)
	for n := likely; n >= least && !s.done; n-- {
		s.try(i, class, n)
	}
	for n := max(likely+1, least); n <= most && !s.done; n++ {
		s.try(i, class, n)
	}
}

func (s *search) try(i, class, n int) {
	s.put(class, s.pfs[i], n)
	if s.promising(i, class+1) {
		s.fill(i, class+1)
	}
	s.put(class, s.pfs[i], -n)
}

// limits returns how many requests of a class may go on pfs[i].
func (s *search) limits(i, class int) (least, most int) {
	most = min(s.most(class, s.pfs[i]), s.pending[class])
	least = max(s.pending[class]-s.later[i+1][class], 0)
	if s.alike[i] && s.isEmpty(s.pfs[i]) {
		least = max(least, 1) // of equal empty PFs any may get the first request, so only this one is tried
	}
	return least, most
}

// likely returns how many requests of a class to try first on pfs[i].
func (s *search) likely(i, class int) int {
	pf, c := s.pfs[i], s.classes[class]
	switch {
	case s.goal.way == dense:
		return s.pending[class]
	case s.goal.way == even:
		return s.share(i, class)
	case c.fit(pf) == far:
		return s.exiles[class]
	case c.mbps == 0 && s.isEmpty(pf):
		return 0
	}
	return s.pending[class] - s.exiles[class]
}

func (s *search) share(i, class int) int {
	var all int64
	for _, pf := range s.pfs[i:] {
		if s.classes[class].fit(pf) != never {
			all += s.problem.pfs[pf].mbps
		}
	}
	return int(int64(s.pending[class]) * s.problem.pfs[s.pfs[i]].mbps / max(all, 1))
}

func (s *search) isEmpty(pf int) bool { return s.left[pf].vfs == s.problem.pfs[pf].vfs }

func (s *search) firstPending() int {
	class := 0
	for class < len(s.pending) && s.pending[class] == 0 {
		class++
	}
	return class
}

// put places n pending requests of a class on a PF; a negative n takes requests away.
func (s *search) put(class, pf, n int) {
	mbps := int64(n) * s.classes[class].mbps
	s.counts[pf][class] += n
	s.left[pf].mbps -= mbps
	s.left[pf].vfs -= n
	s.pending[class] -= n
	s.number -= n
	s.mbps -= mbps
	if s.classes[class].fit(pf) == far {
		s.full.far += n
		s.exiles[class] -= n
	}
}

// next goes on to the next PF when pfs[i] has all its requests.
func (s *search) next(i int) {
	squares, used := s.full.squares, s.full.used
	s.full.squares += s.left[s.pfs[i]].square()
	if !s.isEmpty(s.pfs[i]) {
		s.full.used++
	}
	s.place(i + 1)
	s.full.squares, s.full.used = squares, used
}

// promising reports whether the search should go on from here, where only classes[class:]
// may still go to pfs[i]. The bounds must allow a placement that meets the goal.
func (s *search) promising(i, class int) bool {
	if s.work -= len(s.pfs) - i + len(s.classes)/16; s.work <= 0 {
		s.done = true
		return false
	}
	squares, ok := s.squaresAtMost(i, class)
	if !ok || s.goal.any || !s.found && s.goal.exactly == nil {
		return ok
	}
	most := value{far: s.full.far + s.farAtLeast(i, nil), squares: s.full.squares + squares}
	than := s.value
	if s.goal.exactly != nil {
		than = *s.goal.exactly
	}
	if most.far == than.far && most.squares == than.squares {
		most.used = s.full.used + s.usedAtLeast(i)
	}
	return most.better(than) || s.goal.exactly != nil && most == than
}

// finish looks at a complete placement, which leaves pfs[i:] as they are.
func (s *search) finish(i int) {
	v := s.full
	for _, pf := range s.pfs[i:] {
		v.squares += s.left[pf].square()
	}
	if s.goal.exactly != nil && v != *s.goal.exactly || s.found && !v.better(s.value) {
		return
	}
	s.found, s.value = true, v
	for pf, on := range s.counts {
		copy(s.best[pf], on)
	}
	s.work = min(s.work, moreWork)
	s.done = s.goal.any || s.goal.exactly != nil
}

// isNew reports whether the search should enter this state. It should not if it has
// entered it before with an equal or better value of the filled PFs. As long as any
// placement will do, having entered it before suffices.
func (s *search) isNew(i int) bool {
	s.key = binary.AppendUvarint(s.key[:0], uint64(i))
	for _, n := range s.pending {
		s.key = binary.AppendUvarint(s.key, uint64(n))
	}
	old, known := s.seen[string(s.key)]
	choosy := s.found || s.goal.exactly != nil
	if known && (!choosy || !s.full.better(old)) {
		return false
	}
	s.seen[string(s.key)] = s.full
	return true
}
