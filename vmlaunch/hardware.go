package vmlaunch

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/cpulist"
	"github.com/slurm-v/slurm-v/internal/process"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/slurm/cgroup"
	"github.com/slurm-v/slurm-v/vmlaunch/hypervisor"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// inspectHardware looks at the node below root for a job that wants spec.
func inspectHardware(root string, wish config.Accel, spec jobspec.Spec) (plan.Hardware, error) {
	accel, err := hypervisor.ChooseAccel(wish, root)
	if err != nil {
		return plan.Hardware{}, err
	}
	hw := plan.Hardware{Accel: accel, NUMA: numaNode(filepath.Join(root, "sys"))}
	hw.CPUs, hw.Unpinned = ownCPUs(root, os.Getpid())
	hw.Memory = memoryNodes(root, os.Getpid())
	if len(spec.SRIOV.VFs) > 0 {
		hw.HugePage = hugePage(filepath.Join(root, "sys"), spec)
	}
	return hw, nil
}

// hugePage returns the size in KiB of the largest pages of which the node has
// enough free for all VMs, 0 if there are none. All memory of a VM with VFs is
// pinned and mapped in the IOMMU: the fewer pages, the faster.
func hugePage(sysfs string, spec jobspec.Spec) uint {
	dirs, _ := filepath.Glob(filepath.Join(sysfs, "kernel/mm/hugepages/hugepages-*kB"))
	var sizes []uint
	for _, dir := range dirs {
		text := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(dir), "hugepages-"), "kB")
		kib, err := strconv.ParseUint(text, 10, 32)
		vm := uint64(spec.MemoryMiB) << 10
		if err == nil && kib > 0 && vm%kib == 0 && readCount(filepath.Join(dir, "free_hugepages"))*kib >= vm*uint64(spec.VMsPerNode) {
			sizes = append(sizes, uint(kib))
		}
	}
	return slices.Max(append(sizes, 0))
}

// readCount reads a file with a number; 0 if there is none.
func readCount(file string) uint64 {
	text, _ := os.ReadFile(file)
	n, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return n
}

// numaNode returns the NUMA node of the cores that this process, which is in the
// job's cgroup, may run on; -1 if they are on several or nobody says. sysfs is
// where that file system is mounted.
func numaNode(sysfs string) int {
	var cores unix.CPUSet
	if unix.SchedGetaffinity(0, &cores) != nil {
		return -1
	}
	node := -1
	for cpu := range len(cores) * strconv.IntSize {
		if !cores.IsSet(cpu) {
			continue
		}
		of := nodeOfCPU(sysfs, cpu)
		if of < 0 || node >= 0 && of != node {
			return -1
		}
		node = of
	}
	return node
}

// nodeOfCPU finds the directory nodeN that the kernel links beside a CPU's files.
func nodeOfCPU(sysfs string, cpu int) int {
	links, _ := filepath.Glob(filepath.Join(sysfs, "devices/system/cpu", "cpu"+strconv.Itoa(cpu), "node[0-9]*"))
	if len(links) != 1 {
		return -1
	}
	node, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(links[0]), "node"))
	if err != nil {
		return -1
	}
	return node
}

// ownCPUs returns the CPUs that Slurm has given to the step of a process and to no
// other job, or why that cannot be said. It asks the kernel: Slurm has numbers of its
// own for CPUs, which differ from the kernel's.
func ownCPUs(root string, pid int) (own []plan.CPU, unpinned string) {
	cpus, err := cgroup.CPUs(root, pid)
	if err != nil {
		return nil, "Slurm does not confine jobs to cores (ConstrainCores)"
	}
	sys := filepath.Join(root, "sys")
	nodes, _ := filepath.Glob(filepath.Join(sys, "devices/system/node/node[0-9]*"))
	for _, n := range cpus {
		cpu := plan.CPU{Number: n, Core: firstOfCore(sys, n), NUMA: -1}
		if len(nodes) > 1 {
			cpu.NUMA = nodeOfCPU(sys, n)
		}
		own = append(own, cpu)
	}
	return own, ""
}

// memoryNodes are the NUMA nodes that have memory and from which a process may take
// it: to prefer another is an error.
func memoryNodes(root string, pid int) []int {
	status, _ := os.ReadFile(filepath.Join(root, "proc", strconv.Itoa(pid), "status"))
	allowed := cpulist.Parse(strings.Join(process.ParseStatus(string(status))["Mems_allowed_list"], ""))
	return slices.DeleteFunc(cpulist.Read(filepath.Join(root, "sys/devices/system/node/has_memory")), func(node int) bool {
		return !slices.Contains(allowed, node)
	})
}

// firstOfCore is the number of the first hyper-thread beside a CPU, itself included.
func firstOfCore(sysfs string, cpu int) int {
	all := cpulist.Read(filepath.Join(sysfs, "devices/system/cpu", "cpu"+strconv.Itoa(cpu), "topology/thread_siblings_list"))
	return slices.Min(append(all, cpu))
}
