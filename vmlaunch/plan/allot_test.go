package plan_test

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/internal/cpulist"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmlaunch/plan/plantest"
)

func TestPin(t *testing.T) {
	tests := map[string]struct {
		cpus        []plan.CPU
		vms, vcpus  int
		want        []string // of each VM
		emulator    []string
		wantRefusal string
	}{
		"one to one": {cpus: plantest.CPUs(1, 4), vms: 2, vcpus: 2, want: []string{"0-1", "2-3"}, emulator: []string{"0-1", "2-3"}},
		"a core that is left is QEMU's": {cpus: plantest.CPUs(1, 5), vms: 2, vcpus: 2,
			want: []string{"0-1", "2-3"}, emulator: []string{"4", "4"}},
		"CPUs as the kernel numbers them": {cpus: []plan.CPU{{17, 17, -1}, {3, 3, -1}, {9, 9, -1}}, vms: 1, vcpus: 2,
			want: []string{"3,9"}, emulator: []string{"17"}},
		"fewer CPUs than vCPUs": {cpus: plantest.CPUs(1, 3), vms: 2, vcpus: 2,
			want: []string{"", ""}, wantRefusal: "the VMs have 4 vCPUs, and the step 3 CPUs"},
		"no CPUs": {vms: 1, vcpus: 1, want: []string{""}, wantRefusal: "the VMs have 1 vCPUs, and the step 0 CPUs"},

		"each VM on one NUMA node": {cpus: plantest.CPUs(1, 2, 2), vms: 2, vcpus: 2,
			want: []string{"0-1", "2-3"}, emulator: []string{"0-1", "2-3"}},
		"one VM where the most is free": {cpus: plantest.CPUs(1, 2, 3), vms: 1, vcpus: 2,
			want: []string{"2-3"}, emulator: []string{"4"}},
		"unequal nodes": {cpus: plantest.CPUs(1, 1, 5), vms: 3, vcpus: 2,
			want: []string{"1-2", "3-4", "0|5"}, emulator: []string{"1-2", "3-4", "0,5"}},
		"one on each node although a core is in the way": {cpus: plantest.CPUs(1, 3, 3), vms: 2, vcpus: 2,
			want: []string{"0-1", "3-4"}, emulator: []string{"2", "5"}},
		"a VM as large as the machine": {cpus: plantest.CPUs(1, 2, 2), vms: 1, vcpus: 4, want: []string{"0-1|2-3"}, emulator: []string{"0-3"}},
		"three nodes":                  {cpus: plantest.CPUs(1, 1, 1, 1), vms: 1, vcpus: 3, want: []string{"0|1|2"}, emulator: []string{"0-2"}},
		"QEMU on another node if there is the only core left": {cpus: plantest.CPUs(1, 2, 3), vms: 2, vcpus: 2,
			want: []string{"2-3", "0-1"}, emulator: []string{"4", "4"}},

		"hyper-threads go together": {cpus: plantest.CPUs(2, 4), vms: 2, vcpus: 4,
			want: []string{"0-1,4-5", "2-3,6-7"}, emulator: []string{"0-1,4-5", "2-3,6-7"}},
		"a half core left is for its VM's QEMU": {cpus: plantest.CPUs(2, 4), vms: 2, vcpus: 3,
			want: []string{"0-1,4", "2-3,6"}, emulator: []string{"5", "7"}},
		"a whole core left goes before": {cpus: plantest.CPUs(2, 5), vms: 2, vcpus: 3,
			want: []string{"0-1,5", "2-3,7"}, emulator: []string{"4,9", "4,9"}},
		"VMs of one vCPU have cores of their own": {cpus: plantest.CPUs(2, 2), vms: 2, vcpus: 1,
			want: []string{"0", "1"}, emulator: []string{"2", "3"}},
		"VMs share a core if there are too few": {cpus: plantest.CPUs(2, 3), vms: 2, vcpus: 3,
			want: []string{"0-1,3", "2,4-5"}, emulator: []string{"0-1,3", "2,4-5"}},
		"sharing a core goes before lying on two nodes": {cpus: plantest.CPUs(2, 3, 1), vms: 2, vcpus: 3,
			want: []string{"0-1,4", "2,5-6"}, emulator: []string{"3,7", "3,7"}},
		"cores of which the job has one thread": {cpus: []plan.CPU{{0, 0, -1}, {1, 1, -1}, {5, 1, -1}}, vms: 1, vcpus: 2,
			want: []string{"1,5"}, emulator: []string{"0"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			pinnings, refusal := plan.Pin(plan.Hardware{CPUs: tt.cpus}, tt.vms, tt.vcpus)
			if refusal != tt.wantRefusal {
				t.Errorf("not pinned because %q, want %q", refusal, tt.wantRefusal)
			}
			var got, emulator []string
			for _, p := range pinnings {
				text := ""
				for i, c := range p.Cells {
					if i > 0 {
						text += "|"
					}
					text += cpulist.Format(c.CPUs)
				}
				got = append(got, text)
				if p.Emulator != nil {
					emulator = append(emulator, cpulist.Format(p.Emulator))
				}
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("CPUs differ (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.emulator, emulator); diff != "" {
				t.Errorf("CPUs of QEMU differ (-want +got):\n%s", diff)
			}
		})
	}
}

// Whatever the machine, no CPU is given twice, none from elsewhere, and as many VMs
// lie on one NUMA node as can.
func TestAllotOfAnyMachine(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		var nodes []int
		for range 2 + r.IntN(3) {
			nodes = append(nodes, r.IntN(6))
		}
		cpus := plantest.CPUs(1+r.IntN(3), nodes...)
		r.Shuffle(len(cpus), func(i, j int) { cpus[i], cpus[j] = cpus[j], cpus[i] })
		cpus = cpus[:r.IntN(len(cpus)+1)]
		vcpus := 1 + r.IntN(6)
		vms := len(cpus) / vcpus
		if vms > 0 {
			vms = 1 + r.IntN(vms)
		}
		each, left := plan.Allot(cpus, vms, vcpus)
		checkAllotted(t, cpus, each, left, vms, vcpus)
	}
}

func checkAllotted(t *testing.T, cpus []plan.CPU, each [][]plan.CPU, left []plan.CPU, vms, vcpus int) {
	t.Helper()
	free, perNode := map[plan.CPU]bool{}, map[int]int{}
	for _, c := range cpus {
		free[c] = true
		perNode[c.NUMA]++
	}
	for _, given := range append(each, left) {
		for _, c := range given {
			if !free[c] {
				t.Fatalf("CPU %v is not free: %v of %v", c, each, cpus)
			}
			delete(free, c)
		}
	}
	if len(free) > 0 {
		t.Errorf("%v are lost", free)
	}
	whole := 0
	for _, n := range perNode {
		whole += n / vcpus
	}
	if got, want := plan.Torn(each), max(0, vms-whole); got != want || len(each) != vms {
		t.Errorf("%d VMs, %d of them on several nodes, want %d, %d: %v of %v", len(each), got, vms, want, each, cpus)
	}
	for _, mine := range each {
		if len(mine) != vcpus {
			t.Errorf("a VM has %v for %d vCPUs", mine, vcpus)
		}
	}
}
