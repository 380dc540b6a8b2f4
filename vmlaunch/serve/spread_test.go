package serve

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSpread(t *testing.T) {
	tests := map[string]struct {
		tasks    int
		loads    []int
		vm, gets []int
	}{
		"alone, as without claims":                    {3, []int{0, 0}, []int{0, 1}, []int{2, 1}},
		"a second run starts in the other VM":         {1, []int{1, 0}, []int{1, 0}, []int{0, 1}},
		"the larger share goes where there is room":   {3, []int{2, 1}, []int{1, 0}, []int{1, 2}},
		"equal VMs in their order":                    {2, []int{1, 1, 1}, []int{0, 1, 2}, []int{1, 1, 0}},
		"between two runs":                            {2, []int{1, 0, 1, 0}, []int{1, 3, 0, 2}, []int{0, 1, 0, 1}},
		"one VM takes all":                            {5, []int{7}, []int{0}, []int{5}},
		"more than there is room for: evenly, still":  {4, []int{2, 2}, []int{0, 1}, []int{2, 2}},
		"a number of tasks that somebody has made up": {1 << 40, []int{1, 0}, []int{1, 0}, []int{1 << 39, 1 << 39}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			vm, gets := spread(tt.tasks, tt.loads)
			if diff := cmp.Diff(tt.vm, vm); diff != "" {
				t.Errorf("VMs of the shares differ (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.gets, gets); diff != "" {
				t.Errorf("tasks in the VMs differ (-want +got):\n%s", diff)
			}
		})
	}
}

// Runs that come one after the other leave no VM with two tasks more than another: they
// share a vCPU only if all VMs are full.
func TestSpreadKeepsBalance(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 1000 {
		loads := make([]int, 1+random.IntN(8))
		for range 6 {
			_, gets := spread(1+random.IntN(20), loads)
			for vm := range loads {
				loads[vm] += gets[vm]
			}
			if slices.Max(loads)-slices.Min(loads) > 1 {
				t.Fatalf("loads are %v", loads)
			}
		}
	}
}
