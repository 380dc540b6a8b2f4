package software

import (
	"math"
	"time"
)

// An htbClass is the parameters of an HTB class. HTB gives each class its rate. It gives what
// is left over to the classes that want more, in turns of a quantum each.
type htbClass struct {
	rate, ceil uint64 // bytes per second
	quantum    uint32 // bytes
}

const perMbps = 1_000_000 / 8 // bytes per second

const (
	// A guest hands over up to this much at once, and the sender's side cuts it into
	// frames. A turn sends at least one such packet, so a smaller quantum would give a
	// class more than its part.
	largestSend = 64 << 10

	// On slow PFs, quanta for largestSend would make turns longer than this.
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

// share is the rate of a VF without a minimum, so that it does not starve: one percent of
// the PF's rate, or less if so many VFs would take more than the reserve, which no
// minimum can have. HTB does not prevent that: it limits what classes borrow, not the sum
// of their own rates.
func (p pf) share() uint64 {
	const percent = 100
	spare := uint64(max(p.reserve, 1))
	vfs := uint64(max(p.VFs, 1))
	return max(p.speed()*min(spare, vfs)/(percent*vfs), 1)
}

// quantum is in proportion to rate, so that what is left over is shared as the minima
// are. The factor is the same for all VFs of the PF, whichever are attached.
func (p pf) quantum(rate uint64) uint32 {
	turn := min(largestSend/float64(p.share()), longestTurn.Seconds())
	return uint32(min(max(float64(rate)*turn, leastQuantum), math.MaxInt32))
}

// minimum and maximum are the inverse of shape. They return 0 for a rate up to the share,
// and for a ceiling equal to the PF's rate: shape makes the same class of these and of
// none.
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
