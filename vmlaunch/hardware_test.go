package vmlaunch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/filetest"
	"github.com/slurm-v/slurm-v/slurm"
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

// Root makes templates for jobs, and is in no job itself.
func TestCPUsThatAJobCanHave(t *testing.T) {
	root := t.TempDir()
	writeTopology(t, root)
	filetest.Write(t, filepath.Join(root, "sys/devices/system/cpu/online"), "0-1,4-6\n")
	all := []plan.CPU{{Number: 0, Core: 0, NUMA: 0}, {Number: 1, Core: 1, NUMA: 0}, {Number: 4, Core: 0, NUMA: 0}, {Number: 5, Core: 1, NUMA: 0}, {Number: 6, Core: 2, NUMA: 1}}
	tests := map[string]struct {
		scontrol string
		want     []plan.CPU
		why      string
		wantErr  string
	}{
		"confined to cores":     {"echo 'ConstrainCores          = yes'", all, "", ""},
		"not confined to cores": {"echo 'ConstrainCores          = no'", nil, unconfined, ""},
		"without cgroup.conf":   {"echo 'SLURM_VERSION = 22.05.8'", nil, unconfined, ""},
		"no answer":             {"echo nobody listens >&2; exit 1", nil, "", "ask Slurm whether jobs have cores to themselves"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			bin := t.TempDir()
			if err := os.WriteFile(filepath.Join(bin, "scontrol"), []byte("#!/bin/sh\n"+tt.scontrol+"\n"), 0o755); err != nil {
				t.Fatal(err)
			}
			got, why, err := jobsCPUs(t.Context(), slurm.Client{Bin: bin}, root)
			if diff := cmp.Diff(tt.want, got); diff != "" || why != tt.why {
				t.Errorf("%q, CPUs differ (-want +got):\n%s", why, diff)
			}
			if (err != nil) != (tt.wantErr != "") || err != nil && !strings.Contains(err.Error(), tt.wantErr) {
				t.Errorf("error = %v, want %q in it", err, tt.wantErr)
			}
		})
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

func TestWhatTheCPUOffers(t *testing.T) {
	tests := map[string]struct {
		flags             string
		topoExt, uncached bool
	}{
		"AMD":   {"fpu svm topoext", true, true},
		"Intel": {"fpu vmx xtopology", false, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			filetest.Write(t, filepath.Join(root, "proc/cpuinfo"), "processor\t: 0\nflags\t\t: "+tt.flags+"\n")
			filetest.Write(t, filepath.Join(root, "dev/kvm"), "")
			hw, err := inspectHardware(root, config.AccelKVM)
			if err != nil || hw.TopoExt != tt.topoExt || hw.Uncached != tt.uncached {
				t.Errorf("topology extensions %v, uncached %v, %v; want %v, %v", hw.TopoExt, hw.Uncached, err, tt.topoExt, tt.uncached)
			}
		})
	}
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
