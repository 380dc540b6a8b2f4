package vmlaunch

import (
	"fmt"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/internal/filetest"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// A machine with four cores of two hyper-threads on two NUMA nodes, of which a job
// has some by a cgroup.
func TestOwnCPUs(t *testing.T) {
	const step = "/slurm_n1/uid_6001/job_42/step_0"
	root := t.TempDir()
	filetest.Write(t, filepath.Join(root, "proc/7/cgroup"), "4:cpuset:"+step+"\n")
	filetest.Write(t, filepath.Join(root, "sys/fs/cgroup/cpuset"+step+"/cpuset.cpus"), "1-2,5\n")
	filetest.Write(t, filepath.Join(root, "proc/8/cgroup"), "4:cpuset:/\n")
	writeTopology(t, root)
	got, why := ownCPUs(root, 7)
	if diff := cmp.Diff([]plan.CPU{{Number: 1, Core: 1, NUMA: 0}, {Number: 2, Core: 2, NUMA: 1}, {Number: 5, Core: 1, NUMA: 0}}, got); diff != "" || why != "" {
		t.Errorf("%q, CPUs differ (-want +got):\n%s", why, diff)
	}
	if got, why := ownCPUs(root, 8); got != nil || why != "Slurm does not confine jobs to cores (ConstrainCores)" {
		t.Errorf("a job that is not confined has %v, %q", got, why)
	}
}

func writeTopology(t *testing.T, root string) {
	t.Helper()
	for cpu := range 8 {
		core := cpu % 4
		dir := filepath.Join(root, "sys/devices/system/cpu", fmt.Sprint("cpu", cpu))
		filetest.Write(t, filepath.Join(dir, "topology/thread_siblings_list"), fmt.Sprintf("%d,%d\n", core, core+4))
		filetest.Write(t, filepath.Join(dir, fmt.Sprint("node", core/2), "meminfo"), "")
	}
	filetest.Write(t, filepath.Join(root, "sys/devices/system/node/node0/cpulist"), "")
	filetest.Write(t, filepath.Join(root, "sys/devices/system/node/node1/cpulist"), "")
}

func TestMemoryNodes(t *testing.T) {
	root := t.TempDir()
	if got := memoryNodes(root, 7); len(got) != 0 {
		t.Errorf("a kernel without NUMA has memory on %v", got)
	}
	filetest.Write(t, filepath.Join(root, "sys/devices/system/node/has_memory"), "0-1,3\n")
	filetest.Write(t, filepath.Join(root, "proc/7/status"), "Name:\tx\nMems_allowed:\t0f\nMems_allowed_list:\t1-3\nthreads:\t1\n")
	if diff := cmp.Diff([]int{1, 3}, memoryNodes(root, 7)); diff != "" {
		t.Errorf("nodes differ (-want +got):\n%s", diff)
	}
}
