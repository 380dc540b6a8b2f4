package vmlaunch

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/jobspec"
)

// planOn plans two VMs with two vCPUs each.
func planOn(t *testing.T, hw Hardware, vms int) Plan {
	t.Helper()
	job := someJob()
	job.Spec.VMsPerNode, job.Spec.SRIOV.VFs = vms, []jobspec.VF{{}}
	p, err := NewPlan(config.Default(), job, Owner{Name: "a", UID: 6001, GID: 6001}, hw)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func xmlOf(t *testing.T, p Plan, vm VMPlan) string {
	t.Helper()
	text, err := p.domain(vm, nil).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func TestDomainOnOneNUMANode(t *testing.T) {
	p := planOn(t, Hardware{NUMA: -1, CPUs: someCPUs(1, 3, 2), Memory: []int{0, 1}}, 2)
	text := xmlOf(t, p, p.VMs[1])
	contain(t, text, `<vcpupin vcpu="0" cpuset="3"></vcpupin>`, `<vcpupin vcpu="1" cpuset="4"></vcpupin>`,
		`<emulatorpin cpuset="2"></emulatorpin>`, `<memory mode="preferred" nodeset="1"></memory>`)
	if p.domain(p.VMs[1], nil).CPU.Numa != nil {
		t.Error("a VM on one node has NUMA nodes of its own")
	}
	for i, r := range p.claim().Requests {
		if r.NUMA != i {
			t.Errorf("VFs of VM %d are wanted near node %d", i, r.NUMA)
		}
	}
	p.Hardware.Memory = []int{0}
	if p.domain(p.VMs[1], nil).NUMATune != nil {
		t.Error("memory is wanted of a node that has none")
	}
}

func TestDomainOnTwoNUMANodes(t *testing.T) {
	tests := map[string]struct {
		hugePage uint
		memory   []int
		want     []uint // MiB of the nodes
	}{
		"memory as CPUs":         {memory: []int{0, 1}, want: []uint{767, 256}},
		"in whole pages":         {memory: []int{0, 1}, hugePage: 2048, want: []uint{766, 256}},
		"too few pages":          {memory: []int{0, 1}, hugePage: 512 << 10},
		"a node without memory":  {memory: []int{0}},
		"nobody knows of memory": {},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := planOn(t, Hardware{NUMA: -1, CPUs: someCPUs(1, 3, 1), Memory: tt.memory, HugePage: tt.hugePage}, 1)
			p.Job.Spec.VCPUs, p.Job.Spec.MemoryMiB = 4, 1023
			pinnings, _ := pin(p.Hardware, 1, 4)
			p.VMs[0].Pinning = pinnings[0]
			d := p.domain(p.VMs[0], nil)
			var got []uint
			if d.CPU.Numa != nil {
				for _, c := range d.CPU.Numa.Cell {
					got = append(got, c.Memory)
				}
				contain(t, xmlOf(t, p, p.VMs[0]), `<cell id="0" cpus="0-2"`, `<cell id="1" cpus="3-3"`,
					`<memnode cellid="0" mode="preferred" nodeset="0">`, `<memnode cellid="1" mode="preferred" nodeset="1">`)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("nodes differ (-want +got):\n%s", diff)
			}
			if n := p.claim().Requests[0].NUMA; n != -1 {
				t.Errorf("VFs of a VM on two nodes are wanted near node %d", n)
			}
		})
	}
}

func contain(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("%s is missing in\n%s", part, text)
		}
	}
}

func TestDomainThatIsNotPinned(t *testing.T) {
	p := planOn(t, Hardware{NUMA: 3, Unpinned: "nobody owns cores"}, 2)
	d := p.domain(p.VMs[0], nil)
	if d.CPUTune != nil || d.NUMATune != nil || p.Unpinned != "nobody owns cores" {
		t.Errorf("%v, %v, because %q", d.CPUTune, d.NUMATune, p.Unpinned)
	}
	if n := p.claim().Requests[1].NUMA; n != 3 {
		t.Errorf("VFs are wanted near node %d, and the job's cores are on 3", n)
	}
}

// A machine with four cores of two hyper-threads on two NUMA nodes, of which a job
// has some by a cgroup.
func TestOwnCPUs(t *testing.T) {
	const v1, v2 = "/slurm_n1/uid_6001/job_42/step_0", "/system.slice/n1_slurmstepd.scope/job_42/step_0/user/task_0"
	want := []CPU{{1, 1, 0}, {2, 2, 1}, {5, 1, 0}}
	unconfined := "Slurm does not confine jobs to cores (ConstrainCores)"
	tests := map[string]struct {
		cgroups string
		files   map[string]string // below /sys/fs/cgroup
		want    []CPU
		why     string
	}{
		"cgroup v1": {"5:memory:" + v1 + "\n4:cpuset:" + v1 + "\n0::/\n",
			map[string]string{"cpuset" + v1 + "/cpuset.cpus": "1-2,5\n"}, want, ""},
		"cgroup v1 without ConstrainCores": {"5:memory:" + v1 + "\n4:cpuset:/\n0::/\n",
			map[string]string{"cpuset/cpuset.cpus": "0-7\n"}, nil, unconfined},
		"cgroup v1 in somebody's own cpuset": {"4:cpuset:/containers/a\n",
			map[string]string{"cpuset/containers/a/cpuset.cpus": "1-2,5\n"}, nil, unconfined},
		"cgroup v2": {"0::" + v2 + "\n", map[string]string{
			filepath.Join(v2, "cpuset.cpus.effective"): "1-2,5\n", filepath.Join(v2, "cpuset.cpus"): "\n",
			filepath.Join(v2, "../../../cpuset.cpus"): "1-2,5\n",
		}, want, ""},
		"cgroup v2 without controller at the end": {"0::" + v2 + "\n", map[string]string{
			filepath.Join(v2, "../../../cpuset.cpus"): "1-2,5\n", filepath.Join(v2, "../../../cpuset.cpus.effective"): "1-2,5\n",
		}, want, ""},
		"cgroup v2 without ConstrainCores": {"0::" + v2 + "\n", map[string]string{
			filepath.Join(v2, "cpuset.cpus.effective"): "0-7\n", filepath.Join(v2, "cpuset.cpus"): "\n",
			"/system.slice/cpuset.cpus": "0-7\n", "/system.slice/cpuset.cpus.effective": "0-7\n",
		}, nil, unconfined},
		"no job": {"4:cpuset:/\n0::/user.slice\n", nil, nil, unconfined},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			write(t, filepath.Join(root, "proc/7/cgroup"), tt.cgroups)
			for file, text := range tt.files {
				write(t, filepath.Join(root, "sys/fs/cgroup", file), text)
			}
			writeTopology(t, root)
			got, why := ownCPUs(root, 7)
			if diff := cmp.Diff(tt.want, got); diff != "" || why != tt.why {
				t.Errorf("%q, CPUs differ (-want +got):\n%s", why, diff)
			}
		})
	}
}

func writeTopology(t *testing.T, root string) {
	t.Helper()
	for cpu := range 8 {
		core := cpu % 4
		dir := filepath.Join(root, "sys/devices/system/cpu", fmt.Sprint("cpu", cpu))
		write(t, filepath.Join(dir, "topology/thread_siblings_list"), fmt.Sprintf("%d,%d\n", core, core+4))
		write(t, filepath.Join(dir, fmt.Sprint("node", core/2), "meminfo"), "")
	}
	write(t, filepath.Join(root, "sys/devices/system/node/node0/cpulist"), "")
	write(t, filepath.Join(root, "sys/devices/system/node/node1/cpulist"), "")
}

func TestMemoryNodes(t *testing.T) {
	root := t.TempDir()
	if got := memoryNodes(root, 7); len(got) != 0 {
		t.Errorf("a kernel without NUMA has memory on %v", got)
	}
	write(t, filepath.Join(root, "sys/devices/system/node/has_memory"), "0-1,3\n")
	write(t, filepath.Join(root, "proc/7/status"), "Name:\tx\nMems_allowed:\t0f\nMems_allowed_list:\t1-3\nthreads:\t1\n")
	if diff := cmp.Diff([]int{1, 3}, memoryNodes(root, 7)); diff != "" {
		t.Errorf("nodes differ (-want +got):\n%s", diff)
	}
}

func TestCPUList(t *testing.T) {
	tests := map[string][]int{"": nil, "7": {7}, "0-1": {1, 0}, "0-3,8,10-11": {11, 8, 0, 1, 2, 10, 3}}
	for want, cpus := range tests {
		if got := cpuList(cpus); got != want {
			t.Errorf("%v is %q, want %q", cpus, got, want)
		}
		if want != "" && cpuList(parseList(want)) != want {
			t.Errorf("%q is read as %v", want, parseList(want))
		}
	}
}

func TestANodeTellsOnWhichCPUsItsVMsRun(t *testing.T) {
	pinned := newNode(planOn(t, Hardware{CPUs: someCPUs(1, 5)}, 2), nil, startStopwatch(time.Time{}), nil).Describe()
	if vm := pinned.VMs[1]; vm.CPUs != "2-3" || vm.EmulatorCPUs != "4" || pinned.Unpinned != "" {
		t.Errorf("%+v, because %q", vm, pinned.Unpinned)
	}
	unpinned := newNode(planOn(t, Hardware{Unpinned: "nobody owns cores"}, 2), nil, startStopwatch(time.Time{}), nil).Describe()
	if vm := unpinned.VMs[1]; vm.CPUs != "" || vm.EmulatorCPUs != "" || unpinned.Unpinned != "nobody owns cores" {
		t.Errorf("%+v, because %q", vm, unpinned.Unpinned)
	}
}
