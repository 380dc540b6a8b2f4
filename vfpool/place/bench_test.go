package place

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/slurm-v/slurm-v/jobspec"
)

// cards returns PFs of 100 Gb/s and 128 VFs each, on two NUMA nodes in turn.
func cards() []Free {
	free := able(slices.Repeat([]uint32{100_000}, 8)...)
	for i := range free {
		free[i].NUMA = i % 2
	}
	return free
}

func gigabits(r *rand.Rand, n int, least, most int) (vfs []jobspec.VF) {
	for range n {
		vfs = append(vfs, jobspec.VF{MinMbps: uint32(1000 * (least + r.IntN(most-least+1)))})
	}
	return vfs
}

func BenchmarkPlace(b *testing.B) {
	r := rand.New(rand.NewPCG(5, 6))
	anywhere := func(requests []VFRequest) []VFRequest { return each2(-1, requests) }
	tests := map[string]struct {
		free     []Free
		requests func() []VFRequest
	}{
		"8 VMs with 2 VFs":                          {cards(), func() []VFRequest { return each(8, gigabits(r, 2, 1, 30)...) }},
		"4 VMs with 4 VFs to be spread":             {cards(), func() []VFRequest { return each(4, spread(1000), spread(5000), spread(10000), spread(10000)) }},
		"16 VFs without minima":                     {cards(), func() []VFRequest { return each(1, make([]jobspec.VF, 16)...) }},
		"16 different VFs":                          {cards(), func() []VFRequest { return anywhere(each(1, gigabits(r, 16, 1, 60)...)) }},
		"16 different VFs that prefer half the PFs": {cards(), func() []VFRequest { return each(1, gigabits(r, 16, 1, 60)...) }},
		"9 VFs of 51 do not fit":                    {cards(), func() []VFRequest { return each(9, gigabits(r, 1, 51, 51)...) }},
		"16 different VFs above a half do not fit":  {cards(), func() []VFRequest { return each(1, gigabits(r, 16, 51, 99)...) }},
		"16 VFs of 34 and 35 do not fit on 7 and a half": {
			with(cards(), 7, func(f *Free) { f.Mbps = 60_000 }),
			func() []VFRequest { return each(8, gigabits(r, 2, 34, 35)...) },
		},
		"64 VMs with 16 VFs": {cards(), func() []VFRequest { return each(64, gigabits(r, 16, 0, 1)...) }},
	}
	for name, tt := range tests {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				_, _ = Place(tt.free, tt.requests(), false)
			}
		})
	}
}
