package software

import (
	"math"
	"time"
)

// An htbClass is what an HTB class is told. HTB gives each class its rate, and what is
// left over to those that want more, in turns of a quantum each.
type htbClass struct {
	rate, ceil uint64 // bytes per second
	quantum    uint32 // bytes
}

const perMbps = 1_000_000 / 8 // bytes per second

const (
	// A guest hands over up to this much at once, and leaves cutting it into
	// frames to whoever sends them. A turn of less would give a class more than its
	// part, for a turn sends at least one such thing.
	largestSend = 64 << 10

	// On slow PFs that would make turns too long.
	longestTurn = 50 * time.Millisecond

	// A frame and its header.
	leastQuantum = 1600
)

// shape returns the class of a VF with these rates in Mb/s.
func (p pf) shape(minRate, maxRate uint32) htbClass {
	s := htbClass{rate: max(uint64(minRate)*perMbps, p.share()), ceil: p.speed()}
	if maxRate != 0 {
		s.ceil = min(uint64(maxRate)*perMbps, s.ceil)
	}
	s.rate = min(s.rate, s.ceil)
	s.quantum = p.quantum(s.rate)
	return s
}

func (p pf) speed() uint64 { return uint64(p.Rate) * perMbps }

// share is the rate of a VF without a minimum, so that it does not starve: one
// percent of the PF's, or less where so many VFs would take more than the part
// that no minimum can have. HTB would let them: it bounds the sum of what classes
// borrow, not of what is theirs.
func (p pf) share() uint64 {
	const percent = 100
	spare := uint64(max(p.reserve, 1))
	vfs := uint64(max(p.VFs, 1))
	return max(p.speed()*min(spare, vfs)/(percent*vfs), 1)
}

// quantum is in proportion to rate, so that what is left over is shared as the
// minima are. All VFs of the PF have the same factor, whoever is there.
func (p pf) quantum(rate uint64) uint32 {
	turn := min(largestSend/float64(p.share()), longestTurn.Seconds())
	return uint32(min(max(float64(rate)*turn, leastQuantum), math.MaxInt32))
}

// minimum and maximum are the inverse of shape. There, no maximum and the PF's
// rate are the same, and so are no minimum and one up to the share.
func (p pf) minimum(s htbClass) uint32 {
	if s.rate <= p.share() {
		return 0
	}
	return uint32(s.rate / perMbps)
}

func (p pf) maximum(s htbClass) uint32 {
	if s.ceil == p.speed() {
		return 0
	}
	return uint32(s.ceil / perMbps)
}
