package workload

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// A Topology is how a kernel has arranged its CPUs. It is zero if the kernel does not tell.
type Topology struct {
	CPUs    int `json:"cpus"`
	Sockets int `json:"sockets"`
	Cores   int `json:"cores"`   // of each socket, on average
	Threads int `json:"threads"` // of each core, on average: 2 with hyper-threads
}

// ReadTopology reads it from the sysfs below root.
func ReadTopology(root string) (t Topology) {
	dirs, _ := filepath.Glob(filepath.Join(root, "sys/devices/system/cpu/cpu[0-9]*/topology"))
	sockets, cores := map[string]bool{}, map[string]bool{}
	for _, dir := range dirs {
		socket, err1 := os.ReadFile(filepath.Join(dir, "physical_package_id"))
		core, err2 := os.ReadFile(filepath.Join(dir, "core_id"))
		if err1 != nil || err2 != nil {
			continue // a CPU that has gone meanwhile
		}
		t.CPUs++
		sockets[string(socket)], cores[string(socket)+string(core)] = true, true
	}
	if t.CPUs > 0 {
		t.Sockets, t.Cores, t.Threads = len(sockets), len(cores)/len(sockets), t.CPUs/len(cores)
	}
	return t
}

// Pages are what the VMs of a job on a node have of its huge pages.
type Pages struct {
	VMs     int   `json:"vms"`
	HugeMiB int64 `json:"huge_mib"` // of all VMs together
}

// ReadPages reads it from the /proc below root. The caller may read the processes of the job's owner.
func ReadPages(root, job string) (p Pages) {
	lines, _ := filepath.Glob(filepath.Join(root, "proc/[0-9]*/cmdline"))
	for _, line := range lines {
		text, _ := os.ReadFile(line)
		if !strings.Contains(string(text), "guest=slurmv-"+job+".") {
			continue
		}
		p.VMs++
		memory, _ := os.ReadFile(filepath.Join(filepath.Dir(line), "smaps_rollup"))
		for _, key := range []string{"Private_Hugetlb", "Shared_Hugetlb"} {
			for _, size := range values(string(memory), key) {
				kib, _ := strconv.ParseInt(strings.TrimSuffix(size, " kB"), 10, 64)
				p.HugeMiB += kib >> 10
			}
		}
	}
	return p
}
