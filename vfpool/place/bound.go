package place

import (
	"cmp"
	"slices"
)

// A value is how good a placement is, or can be at best.
type value struct {
	far     int
	squares int64 // of the bandwidths left
	used    int   // PFs
}

func (v value) better(than value) bool {
	return cmp.Or(cmp.Compare(v.far, than.far), cmp.Compare(than.squares, v.squares), cmp.Compare(v.used, than.used)) < 0
}

// roomy reports whether the pending requests may fit on pfs[i:]. They do not fit if an
// area has too little for the classes that must go there, or if the PFs have room for too
// few requests of a size.
func (s *search) roomy(i int) bool {
	for _, a := range s.areas {
		room, need := s.room(a.pfs, i), capacity{}
		for _, class := range a.classes {
			need.vfs += s.pending[class]
			need.mbps += int64(s.pending[class]) * s.classes[class].mbps
		}
		if need.vfs > room.vfs || need.mbps > room.mbps {
			return false
		}
	}
	return s.roomyBySize(i)
}

func (s *search) roomyBySize(i int) bool {
	number := 0
	for _, class := range s.bySize {
		if s.pending[class] == 0 {
			continue
		}
		number += s.pending[class]
		room := 0
		for _, pf := range s.pfs[i:] {
			room += s.left[pf].fits(s.classes[class].mbps)
		}
		if number > room {
			return false
		}
	}
	return true
}

// room returns what those of pfs that are among s.pfs[i:] have left in total.
func (s *search) room(pfs []int, i int) (room capacity) {
	for _, pf := range pfs {
		if s.at[pf] >= i {
			room.mbps += s.left[pf].mbps
			room.vfs += s.left[pf].vfs
		}
	}
	return room
}

// farAtLeast returns a lower bound for the number of pending requests that end far from
// their VMs. It treats the PFs near to some classes as one large PF and puts as many
// requests there as fit, the smallest first.
func (s *search) farAtLeast(i int, each func(class, n int)) (number int) {
	for _, v := range s.vicinities {
		room := s.room(v.pfs, i)
		for _, class := range slices.Backward(v.classes) {
			mbps, pending := s.classes[class].mbps, s.pending[class]
			here := pending
			if pending > room.vfs || int64(pending)*mbps > room.mbps {
				here = min(pending, room.fits(mbps))
			}
			room.mbps -= int64(here) * mbps
			room.vfs -= here
			number += pending - here
			if each != nil {
				each(class, pending-here)
			}
		}
	}
	return number
}

// A span is the least and the most bandwidth that a PF can have left.
type span struct{ least, most int64 }

// squaresAtMost returns an upper bound for the sum of the squares of the bandwidths that
// pfs[i:] can have left; false if they cannot take all pending requests.
//
// It returns the smaller of two bounds. The sum is convex, so it is largest if the PFs
// with the most bandwidth keep all of theirs (keepLargest). A square is nowhere above the
// chord over the span of its PF, so the sum of the chords is a bound, too: it is largest
// if the PFs with the steepest chords keep all of theirs (keepSteepest).
func (s *search) squaresAtMost(i, class int) (int64, bool) {
	room := s.room(s.pfs[i:], i)
	first := s.firstPending()
	kept, least, most := room.mbps-s.mbps, int64(0), int64(0)
	s.spans = s.spans[:0]
	for j := len(s.pfs) - 1; j >= i; j-- { // about the order that keepLargest sorts into
		pf, from := s.pfs[j], first
		if j == i {
			from = max(class, first)
		}
		span := s.span(s.left[pf], from, room.vfs-s.number)
		if span.least > span.most {
			return 0, false
		}
		least, most = least+span.least, most+span.most
		s.spans = append(s.spans, span)
	}
	if room.vfs < s.number || kept < least || kept > most {
		return 0, false
	}
	return min(keepLargest(s.spans, kept), keepSteepest(s.spans, kept-least)), true
}

// span returns how much a PF can have left after it has taken some of classes[from:]. All
// PFs together have spare more VFs than there are pending requests.
func (s *search) span(c capacity, from, spare int) span {
	least, most := c.mbps-s.sums[from].atMost(c.mbps), c.mbps
	if c.vfs < s.number {
		least = max(least, c.mbps-s.largest(c.vfs))
	}
	if c.vfs > spare {
		most -= s.smallest(c.vfs - spare)
	}
	return span{least, most}
}

// largest returns the sum of the n largest pending minima.
func (s *search) largest(n int) (mbps int64) {
	for _, class := range s.bySize {
		k := min(n, s.pending[class])
		mbps += int64(k) * s.classes[class].mbps
		n -= k
	}
	return mbps
}

// smallest returns the sum of the n smallest pending minima.
func (s *search) smallest(n int) int64 { return s.mbps - s.largest(s.number-min(n, s.number)) }

func keepLargest(spans []span, kept int64) (squares int64) {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(b.most, a.most) })
	for _, s := range spans {
		n := min(kept, s.most)
		squares += n * n
		kept -= n
	}
	return squares
}

func keepSteepest(spans []span, kept int64) (squares int64) {
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(b.least+b.most, a.least+a.most) })
	for _, s := range spans {
		n := min(kept, s.most-s.least)
		squares += s.least*s.least + n*(s.least+s.most)
		kept -= n
	}
	return squares
}

// usedAtLeast returns a lower bound for the number of PFs in use at the end, of pfs[i:]:
// the pending requests go to as few PFs as possible, the largest first.
func (s *search) usedAtLeast(i int) int {
	pfs, number, mbps, vfs := s.pfs[i:], 0, s.mbps, s.number
	if now := s.left[pfs[0]]; !s.isEmpty(pfs[0]) {
		pfs, number, mbps, vfs = pfs[1:], 1, mbps-now.mbps, vfs-now.vfs
	}
	return number + max(
		s.fewest(pfs, mbps, func(c capacity) int64 { return c.mbps }),
		s.fewest(pfs, int64(vfs), func(c capacity) int64 { return int64(c.vfs) }))
}

// fewest returns how many of the PFs, the largest first, add up to whole.
func (s *search) fewest(pfs []int, whole int64, of func(capacity) int64) (n int) {
	if whole <= 0 {
		return 0
	}
	s.parts = s.parts[:0]
	for _, pf := range pfs {
		s.parts = append(s.parts, of(s.left[pf]))
	}
	slices.SortFunc(s.parts, func(a, b int64) int { return cmp.Compare(b, a) })
	for ; n < len(pfs) && whole > 0; n++ {
		whole -= s.parts[n]
	}
	return n
}
