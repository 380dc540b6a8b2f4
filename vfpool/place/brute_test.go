package place

import (
	"errors"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/jobspec"
)

// legal implements the rules a second time, in the simplest way.
func legal(free []Free, requests []VFRequest, soft bool, pfs []int) bool {
	type vmPF struct{ vm, pf int }
	mbps, vfs, spread := make([]uint32, len(free)), make([]int, len(free)), map[vmPF]bool{}
	for i, pf := range pfs {
		r, f := requests[i], free[pf]
		mbps[pf] += r.VF.MinMbps
		vfs[pf]++
		switch {
		case mbps[pf] > f.Mbps, vfs[pf] > f.VFs:
			return false
		case r.VF.PF != "" && r.VF.PF != f.PF:
			return false
		case r.VF.NUMA == jobspec.NUMARequire && r.NUMA != f.NUMA:
			return false
		case !soft && (r.VF.MinMbps > 0 && !f.MinRate || r.VF.MaxMbps > 0 && !f.MaxRate):
			return false
		case r.VF.Spread && spread[vmPF{r.VM, pf}]:
			return false
		}
		spread[vmPF{r.VM, pf}] = spread[vmPF{r.VM, pf}] || r.VF.Spread
	}
	return true
}

func valueOf(free []Free, requests []VFRequest, pfs []int) (v value) {
	left, used := make([]int64, len(free)), map[int]bool{}
	for pf, f := range free {
		left[pf] = int64(f.Mbps)
	}
	for i, pf := range pfs {
		r, f := requests[i], free[pf]
		left[pf] -= int64(r.VF.MinMbps)
		used[pf] = true
		if r.NUMA != -1 && f.NUMA != -1 && r.NUMA != f.NUMA && r.VF.NUMA != jobspec.NUMAAny {
			v.far++
		}
	}
	for _, l := range left {
		v.squares += l * l
	}
	v.used = len(used)
	return v
}

// brute tries all placements.
func brute(free []Free, requests []VFRequest, soft bool) (best []int) {
	pfs := make([]int, 0, len(requests))
	var try func()
	try = func() {
		if !legal(free, requests, soft, pfs) {
			return
		}
		if len(pfs) == len(requests) {
			if best == nil || preferable(free, requests, pfs, best) {
				best = slices.Clone(pfs)
			}
			return
		}
		for pf := range free {
			pfs = append(pfs, pf)
			try()
			pfs = pfs[:len(pfs)-1]
		}
	}
	try()
	return best
}

func preferable(free []Free, requests []VFRequest, a, b []int) bool {
	if va, vb := valueOf(free, requests, a), valueOf(free, requests, b); va != vb {
		return va.better(vb)
	}
	return slices.CompareFunc(loads(len(free), requests, a), loads(len(free), requests, b), slices.Compare) > 0
}

func pick[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// randomCase returns a node and a job that just fits, or just does not fit.
func randomCase(r *rand.Rand) (free []Free, requests []VFRequest, soft bool) {
	capable := r.IntN(4) > 0
	for i := range 1 + r.IntN(5) {
		free = append(free, Free{
			PF: string(rune('a' + i)), NUMA: pick(r, -1, 0, 0, 1), Mbps: pick(r, 10, 12, 20, 20, 24, uint32(r.IntN(40))),
			VFs: pick(r, 1, 2, 3, 8, 8, r.IntN(4)), MinRate: capable || r.IntN(3) > 0, MaxRate: capable || r.IntN(3) > 0,
		})
	}
	many := r.IntN(2) == 0
	for vm := range 1 + r.IntN(4) {
		numa := pick(r, -1, 0, 1)
		for i := range 1 + r.IntN(3) {
			if many && vm > 0 && i < len(requests) && requests[i].VM == 0 {
				requests = append(requests, VFRequest{VM: vm, NUMA: numa, VF: requests[i].VF}) // as in a job
				continue
			}
			requests = append(requests, VFRequest{VM: vm, NUMA: numa, VF: randomVF(r)})
		}
	}
	return free, requests[:min(len(requests), 6)], r.IntN(3) == 0
}

func randomVF(r *rand.Rand) jobspec.VF {
	return jobspec.VF{
		MinMbps: pick(r, 0, 3, 5, 5, 8, uint32(r.IntN(14))), MaxMbps: pick[uint32](r, 0, 0, 0, 30),
		PF: pick(r, "", "", "", "", "", "", "", "", "", "", "", "a", "b"), Spread: r.IntN(2) == 0,
		NUMA: pick(r, jobspec.NUMAPrefer, jobspec.NUMAPrefer, jobspec.NUMAPrefer, jobspec.NUMAAny, jobspec.NUMAAny, jobspec.NUMARequire),
	}
}

func TestAsBruteForce(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	placed := 0
	for range 10_000 {
		free, requests, soft := randomCase(r)
		want := brute(free, requests, soft)
		got, err := Place(free, requests, soft)
		if (err == nil) != (want != nil) || err != nil && !errors.Is(err, ErrNoFit) {
			t.Fatalf("%+v\n%+v\nsoft %v: placed %v, error %v; want %v", free, requests, soft, got, err, want)
		}
		if err != nil {
			continue
		}
		placed++
		if len(got) != len(requests) || !legal(free, requests, soft, got) {
			t.Fatalf("%+v\n%+v\nsoft %v: %v breaks the rules", free, requests, soft, got)
		}
		if g, w := valueOf(free, requests, got), valueOf(free, requests, want); g != w {
			t.Fatalf("%+v\n%+v\nsoft %v: %v is %+v, %v is %+v", free, requests, soft, got, g, want, w)
		}
	}
	t.Logf("%d of 10000 cases can be placed", placed)
	if placed < 3000 || placed > 7000 {
		t.Errorf("%d of 10000 cases can be placed: they show little", placed)
	}
}

// Of placements that are equal, the first PFs get the largest minima.
func TestTheFirstOfEquals(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 1000 {
		var free []Free
		for range 1 + r.IntN(4) {
			free = append(free, able(pick[uint32](r, 10, 12, 20))...)
		}
		var requests []VFRequest
		for range 1 + r.IntN(6) {
			requests = append(requests, minima(pick[uint32](r, 0, 3, 4, 5, 8))...)
		}
		want := brute(free, requests, false)
		got, err := Place(free, requests, false)
		if err != nil {
			continue
		}
		if diff := cmp.Diff(loads(len(free), requests, want), loads(len(free), requests, got)); diff != "" {
			t.Fatalf("%+v\n%+v\n(-want +got):\n%s", free, requests, diff)
		}
	}
}

// loads returns the minima on each PF, the largest first.
func loads(pfs int, requests []VFRequest, answer []int) [][]uint32 {
	on := make([][]uint32, pfs)
	for i, pf := range answer {
		on[pf] = append(on[pf], requests[i].VF.MinMbps)
	}
	for _, minima := range on {
		slices.Sort(minima)
		slices.Reverse(minima)
	}
	return on
}

func TestSums(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	for range 200 {
		unit, limit := int64(1+r.IntN(9)), int64(r.IntN(3000))
		s, reached := newSums(unit, limit), map[int64]bool{0: true}
		for range r.IntN(6) {
			n, mbps := r.IntN(5), unit*int64(r.IntN(200))
			s = s.plus(n, mbps)
			for range n {
				for sum := range maps.Clone(reached) {
					reached[sum+mbps] = true
				}
			}
		}
		want := int64(0)
		for x := range limit + 1 {
			if reached[x] {
				want = x
			}
			if got := s.atMost(x); got != want {
				t.Fatalf("the largest sum up to %d is %d, want %d", x, got, want)
			}
		}
	}
}
