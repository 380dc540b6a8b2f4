package place

import "math/bits"

// sums is the set of possible sums of minima: bit n stands for n units.
type sums struct {
	unit int64
	bits []uint64
}

// maxSums bounds the size of sums, in bits. Above it, all multiples of the unit count as
// possible sums, which only makes the search longer.
const maxSums = 8192

// sumsFrom returns the sums of requests of classes[i:], up to the largest PF.
func (p *problem) sumsFrom() []sums {
	var unit, limit int64
	for _, c := range p.classes {
		unit = gcd(unit, c.mbps)
	}
	for _, c := range p.pfs {
		limit = max(limit, c.mbps)
	}
	all := make([]sums, len(p.classes)+1)
	all[len(p.classes)] = newSums(max(unit, 1), limit)
	for i := len(p.classes) - 1; i >= 0; i-- {
		all[i] = all[i+1].plus(len(p.classes[i].requests), p.classes[i].mbps)
	}
	return all
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

func newSums(unit, limit int64) sums {
	if limit/unit >= maxSums {
		return sums{unit: unit}
	}
	s := sums{unit, make([]uint64, limit/unit/64+1)}
	s.bits[0] = 1
	return s
}

// plus returns the sums that result from adding mbps up to n times.
func (s sums) plus(n int, mbps int64) sums {
	all := sums{s.unit, append([]uint64(nil), s.bits...)}
	for k := 1; mbps > 0 && n > 0; k *= 2 {
		k = min(k, n)
		all.or(int64(k) * mbps / s.unit)
		n -= k
	}
	return all
}

// or adds, for each sum, that sum plus units.
func (s sums) or(units int64) {
	words, shift := int(min(units/64, int64(len(s.bits)))), units%64
	for to := len(s.bits) - 1; to >= words; to-- {
		word := s.bits[to-words] << shift
		if from := to - words - 1; from >= 0 && shift > 0 {
			word |= s.bits[from] >> (64 - shift)
		}
		s.bits[to] |= word
	}
}

// atMost returns the largest sum that is not above mbps.
func (s sums) atMost(mbps int64) int64 {
	units := mbps / s.unit
	if s.bits == nil {
		return units * s.unit
	}
	word := int(units / 64)
	masked := s.bits[word] & (^uint64(0) >> (63 - units%64))
	for masked == 0 {
		word--
		masked = s.bits[word]
	}
	return (int64(word)*64 + int64(bits.Len64(masked)) - 1) * s.unit
}
