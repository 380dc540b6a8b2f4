package place

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/jobspec"
)

// able returns PFs that have mbps left, and whose drivers can do everything.
func able(mbps ...uint32) []Free {
	var free []Free
	for i, m := range mbps {
		free = append(free, Free{PF: fmt.Sprintf("p%d", i), NUMA: -1, Mbps: m, VFs: 128, MinRate: true, MaxRate: true})
	}
	return free
}

// with returns PFs after a change of one of them.
func with(free []Free, pf int, change func(*Free)) []Free {
	free = slices.Clone(free)
	change(&free[pf])
	return free
}

// minima returns the VFs of one VM.
func minima(mbps ...uint32) []VFRequest {
	var requests []VFRequest
	for _, m := range mbps {
		requests = append(requests, VFRequest{NUMA: -1, VF: jobspec.VF{MinMbps: m}})
	}
	return requests
}

// each returns so many VMs with the same VFs, the first half on NUMA node 0 and
// the others on 1.
func each(vms int, vfs ...jobspec.VF) []VFRequest {
	var requests []VFRequest
	for vm := range vms {
		for _, vf := range vfs {
			requests = append(requests, VFRequest{VM: vm, NUMA: vm * 2 / vms, VF: vf})
		}
	}
	return requests
}

func TestPlace(t *testing.T) {
	fewVFs := func(n int) func(*Free) { return func(f *Free) { f.VFs = n } }
	onNode := func(n int) func(*Free) { return func(f *Free) { f.NUMA = n } }
	slow := func(f *Free) { f.MinRate = false }
	uncapped := func(f *Free) { f.MaxRate = false }
	tests := map[string]struct {
		free     []Free
		requests []VFRequest
		soft     bool
		want     []int // nil: no fit
	}{
		"ConRDMA: 3, 3 and 8 on 9 and 6":                     {free: able(9, 6), requests: minima(3, 3, 8), want: []int{1, 1, 0}},
		"ConRDMA: the same with one VF left on the second":   {free: with(able(9, 6), 1, fewVFs(1)), requests: minima(3, 3, 8)},
		"ConRDMA: 8 and four of 3 on 12 and 8":               {free: able(12, 8), requests: minima(8, 3, 3, 3, 3), want: []int{1, 0, 0, 0, 0}},
		"ConRDMA: 8 and four of 3 on 10 and 11":              {free: able(10, 11), requests: minima(8, 3, 3, 3, 3), want: []int{1, 0, 0, 0, 1}},
		"nothing is asked for":                               {free: able(9), want: []int{}},
		"nothing is asked for where there is nothing":        {want: []int{}},
		"there is nothing":                                   {requests: minima(0)},
		"a minimum that is all there is":                     {free: able(9), requests: minima(9), want: []int{0}},
		"a minimum that is one more":                         {free: able(9), requests: minima(10)},
		"a PF without VFs":                                   {free: with(able(9, 9), 0, fewVFs(0)), requests: minima(1), want: []int{1}},
		"a PF with a number of VFs that makes no sense":      {free: with(able(9), 0, fewVFs(-1)), requests: minima(0)},
		"of equal PFs the first":                             {free: able(9, 9, 9), requests: minima(3), want: []int{0}},
		"the large hole is kept":                             {free: able(9, 5, 7), requests: minima(3, 1), want: []int{1, 1}},
		"the large hole is kept, though that takes two PFs":  {free: able(20, 5, 5), requests: minima(5, 5), want: []int{1, 2}},
		"VFs without minima are on few PFs":                  {free: able(9, 5, 7), requests: minima(0, 0, 3, 0), want: []int{1, 1, 1, 1}},
		"VFs without minima are on the PF that has as many":  {free: with(able(9, 9), 0, fewVFs(2)), requests: minima(0, 0, 0), want: []int{1, 1, 1}},
		"a PF by its name":                                   {free: able(9, 5), requests: []VFRequest{{VF: jobspec.VF{PF: "p0"}}}, want: []int{0}},
		"a PF by a name that there is not":                   {free: able(9, 5), requests: []VFRequest{{VF: jobspec.VF{PF: "p2"}}}},
		"others make room for those that name their PF":      {free: with(able(9, 9), 0, fewVFs(1)), requests: []VFRequest{{}, {VF: jobspec.VF{PF: "p0"}}}, want: []int{1, 0}},
		"a PF near to the CPUs":                              {free: with(with(able(9, 5), 0, onNode(1)), 1, onNode(0)), requests: []VFRequest{{NUMA: 1, VF: jobspec.VF{MinMbps: 1}}}, want: []int{0}},
		"a far PF, when the near one is full":                {free: with(with(able(0, 5), 0, onNode(1)), 1, onNode(0)), requests: []VFRequest{{NUMA: 1, VF: jobspec.VF{MinMbps: 1}}}, want: []int{1}},
		"the most VFs are near":                              {free: with(with(able(9, 20), 0, onNode(1)), 1, onNode(0)), requests: each2(1, minima(9, 3, 3, 3)), want: []int{1, 0, 0, 0}},
		"it does not matter what is near":                    {free: with(with(able(9, 5), 0, onNode(1)), 1, onNode(0)), requests: []VFRequest{{NUMA: 1, VF: jobspec.VF{MinMbps: 1, NUMA: jobspec.NUMAAny}}}, want: []int{1}},
		"a PF must be near":                                  {free: with(with(able(0, 5), 0, onNode(1)), 1, onNode(0)), requests: []VFRequest{{NUMA: 1, VF: jobspec.VF{MinMbps: 1, NUMA: jobspec.NUMARequire}}}},
		"a PF must be near and is":                           {free: with(with(able(9, 5), 0, onNode(1)), 1, onNode(0)), requests: []VFRequest{{NUMA: 1, VF: jobspec.VF{MinMbps: 1, NUMA: jobspec.NUMARequire}}}, want: []int{0}},
		"a PF must be near, and nobody knows where it is":    {free: able(9), requests: []VFRequest{{NUMA: 1, VF: jobspec.VF{NUMA: jobspec.NUMARequire}}}},
		"a PF must be near to a VM that is anywhere":         {free: with(able(9), 0, onNode(0)), requests: []VFRequest{{NUMA: -1, VF: jobspec.VF{NUMA: jobspec.NUMARequire}}}},
		"a PF must be near, and there are no nodes":          {free: able(9), requests: []VFRequest{{NUMA: -1, VF: jobspec.VF{NUMA: jobspec.NUMARequire}}}, want: []int{0}},
		"a PF that is anywhere is as good as a near one":     {free: with(able(9, 5), 0, onNode(1)), requests: []VFRequest{{NUMA: 1, VF: jobspec.VF{MinMbps: 1}}}, want: []int{1}},
		"a driver that cannot reserve":                       {free: with(able(9, 20), 0, slow), requests: minima(1), want: []int{1}},
		"a driver that cannot reserve, without a minimum":    {free: with(able(9), 0, slow), requests: minima(0), want: []int{0}},
		"no driver can reserve":                              {free: with(able(9), 0, slow), requests: minima(1)},
		"no driver can reserve, but it is accounted":         {free: with(able(9), 0, slow), requests: minima(4, 5), soft: true, want: []int{0, 0}},
		"it is accounted that no driver can reserve so much": {free: with(able(9), 0, slow), requests: minima(5, 5), soft: true},
		"a driver that cannot cap":                           {free: with(able(9, 20), 0, uncapped), requests: []VFRequest{{VF: jobspec.VF{MaxMbps: 1}}}, want: []int{1}},
		"no driver can cap":                                  {free: with(able(9), 0, uncapped), requests: []VFRequest{{VF: jobspec.VF{MaxMbps: 1}}}},
		"no driver can cap, and need not":                    {free: with(able(9), 0, uncapped), requests: []VFRequest{{VF: jobspec.VF{MaxMbps: 1}}}, soft: true, want: []int{0}},
		"VFs to be spread":                                   {free: able(9, 5, 7), requests: each(1, spread(1), spread(1)), want: []int{1, 2}},
		"more VFs to be spread than PFs":                     {free: able(9, 5), requests: each(1, spread(0), spread(0), spread(0))},
		"VFs of different VMs need not be spread":            {free: able(9, 5), requests: each(3, spread(1)), want: []int{1, 1, 1}},
		"two VMs that spread what they differ in":            {free: able(9, 9), requests: each(2, spread(4), spread(5)), want: []int{1, 0, 0, 1}},
		"one of three VFs is not to be spread":               {free: able(9, 5), requests: each(1, spread(1), spread(1), jobspec.VF{MinMbps: 1}), want: []int{0, 1, 1}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, err := Place(tt.free, tt.requests, tt.soft)
			if (err == nil) != (tt.want != nil) || err != nil && !errors.Is(err, ErrNoFit) {
				t.Fatalf("error = %v", err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("PFs differ (-want +got):\n%s", diff)
			}
		})
	}
}

func spread(mbps uint32) jobspec.VF { return jobspec.VF{MinMbps: mbps, Spread: true} }

// each2 returns the requests with their VMs' CPUs on a NUMA node.
func each2(numa int, requests []VFRequest) []VFRequest {
	for i := range requests {
		requests[i].NUMA = numa
	}
	return requests
}

func TestErrors(t *testing.T) {
	node1 := with(able(9000, 500), 0, func(f *Free) { f.NUMA = 1 })
	weak := with(with(able(9000, 9000), 0, func(f *Free) { f.MinRate = false }), 1, func(f *Free) { f.MaxRate = false })
	tests := map[string]struct {
		free     []Free
		requests []VFRequest
		want     string
	}{
		"one that is too large": {able(9000, 500), each(2, jobspec.VF{MinMbps: 10000}),
			"VF 0 of VM 0 (min=10g) has no place: p0 has 9g left, p1 has 500m left"},
		"one too many": {able(9000, 500), each(2, jobspec.VF{}, jobspec.VF{MinMbps: 6000, MaxMbps: 7500}),
			"VF 1 of VM 1 (min=6g,max=7500m) has no place beside 3 others of the job: p0 has 3g left, p1 has 500m left"},
		"more than there are VFs": {with(able(9, 9), 0, func(f *Free) { f.VFs = 2 })[:1], minima(1, 1, 1),
			"VF 2 of VM 0 (min=1m) has no place beside 2 others of the job: p0 has no VF left"},
		"more to be spread than there are PFs": {able(9, 9), each(1, spread(0), spread(0), spread(0)),
			"VF 2 of VM 0 (spread) has no place beside 2 others of the job: " +
				"p0 has another of the VM's VFs that are to be spread, p1 has another of the VM's VFs that are to be spread"},
		"what no driver can do": {weak, each(1, jobspec.VF{MinMbps: 1, MaxMbps: 2}),
			"VF 0 of VM 0 (min=1m,max=2m) has no place: p0 has a driver that cannot reserve bandwidth, p1 has a driver that cannot limit bandwidth"},
		"PFs on other NUMA nodes": {node1, each(1, jobspec.VF{NUMA: jobspec.NUMARequire}),
			"VF 0 of VM 0 (numa=require) has no place: p0 is not on the VM's NUMA node but on 1, p1 is not on the VM's NUMA node but on one that is not known"},
		"only the PF that is named": {able(9000, 500), each(1, jobspec.VF{PF: "p1", MinMbps: 1000}),
			"VF 0 of VM 0 (min=1g,pf=p1) has no place: p1 has 500m left"},
		"a PF that there is not": {able(9000, 500), each(1, jobspec.VF{PF: "eth0"}),
			"VF 0 of VM 0 (pf=eth0) has no place: the node's PFs are p0, p1"},
		"no PF": {nil, each(1, jobspec.VF{}), "VF 0 of VM 0 has no place: the node has no PF for it"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := Place(tt.free, tt.requests, false)
			var e *Error
			if !errors.As(err, &e) || e.Possible || e.Error() != tt.want {
				t.Errorf("error = %v\n        want %s", err, tt.want)
			}
		})
	}
}

// A search that is cut short says that it proves nothing. Here any three minima leave at
// least 2 Mb/s of a PF, which is more than there is to spare.
func TestErrorWithoutProof(t *testing.T) {
	var requests []VFRequest
	for i := range uint32(60) {
		requests = append(requests, minima(33_001+3*i)...)
	}
	_, err := Place(able(slices.Repeat([]uint32{99_269}, 20)...), requests, false)
	var e *Error
	if !errors.As(err, &e) || !e.Possible || !strings.HasSuffix(err.Error(), "(there are too many different minima to try everything; fewer would help)") {
		t.Errorf("error = %v", err)
	}
}

// The largest jobs that can be asked for: some of their VFs fill the PFs exactly and some
// do not, and all must be dealt out to the VMs.
func TestLargestJobs(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	free := able(slices.Repeat([]uint32{100_000}, 8)...)
	for i := range free {
		free[i].NUMA = i % 2
	}
	for range 5 {
		var vfs []jobspec.VF
		for i := range 16 {
			vfs = append(vfs, jobspec.VF{MinMbps: uint32(r.IntN(1400)), Spread: i < 8 && r.IntN(2) == 0})
		}
		requests := each(64, vfs...)
		got, err := Place(free, requests, false)
		again, _ := Place(free, requests, false)
		var e *Error
		switch {
		case err == nil && !legal(free, requests, false, got):
			t.Errorf("%v: %v breaks the rules", vfs, got)
		case !slices.Equal(got, again):
			t.Errorf("%v: %v, and then %v", vfs, got, again)
		case errors.As(err, &e) && e.Possible:
			t.Errorf("%v: %v", vfs, err)
		}
	}
}

// Any answer keeps the rules, and where Place says that there is no placement, there is
// none.
func FuzzPlace(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, a, b uint64) {
		free, requests, soft := randomCase(rand.New(rand.NewPCG(a, b)))
		want := brute(free, requests, soft)
		got, err := Place(free, requests, soft)
		if (err == nil) != (want != nil) || err != nil && !errors.Is(err, ErrNoFit) {
			t.Fatalf("%+v\n%+v\nsoft %v: %v, error %v; want %v", free, requests, soft, got, err, want)
		}
		if err == nil && (!legal(free, requests, soft, got) || valueOf(free, requests, got) != valueOf(free, requests, want)) {
			t.Errorf("%+v\n%+v\nsoft %v: %v, want one like %v", free, requests, soft, got, want)
		}
	})
}
