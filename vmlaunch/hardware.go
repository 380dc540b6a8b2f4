package vmlaunch

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/cpulist"
	"github.com/slurm-v/slurm-v/internal/emulator"
	"github.com/slurm-v/slurm-v/internal/process"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/slurm/cgroup"
	"github.com/slurm-v/slurm-v/vmlaunch/hypervisor"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// missingDevices asks the node's QEMU which devices it does not know, or finds the answer in
// the node's state.
func missingDevices(ctx context.Context, configured, state string) (emulator.Missing, error) {
	path, err := emulator.Find("/", configured)
	if err != nil {
		return emulator.Missing{}, fmt.Errorf("find QEMU: %w; tell the administrator", err)
	}
	return emulator.Cache(filepath.Join(state, "emulator")).Ask(ctx, path)
}

// inspectHardware finds out what the node offers to a job. root is the node's root directory.
func inspectHardware(root string, wish config.Accel) (plan.Hardware, error) {
	accel, err := hypervisor.ChooseAccel(wish, root)
	if err != nil {
		return plan.Hardware{}, err
	}
	hw := plan.Hardware{Accel: accel, NUMA: numaNode(filepath.Join(root, "sys"))}
	hw.CPUs, hw.Unpinned = ownCPUs(root, os.Getpid())
	hw.Memory = memoryNodes(root, os.Getpid())
	_, err = os.Stat(filepath.Join(root, "dev/vhost-net"))
	hw.Vhost = err == nil
	hw.TopoExt = hypervisor.TellsThreads(root)
	hw.Uncached = hypervisor.MapsUncached(accel, root)
	return hw, nil
}

// numaNode returns the NUMA node of the cores that this process may run on. The process is
// in the job's cgroup, so these are the job's cores. numaNode returns -1 if they are on
// several nodes or the kernel does not say. sysfs is where sysfs is mounted.
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

// nodeOfCPU returns the NUMA node of a CPU, -1 if unknown. The kernel links it as nodeN
// beside the CPU's files.
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

// ownCPUs returns the CPUs that Slurm gave to the step of a process and to no other job, or
// why they are unknown. The numbers are the kernel's; Slurm's CPU ids differ from them.
func ownCPUs(root string, pid int) (own []plan.CPU, unpinned string) {
	cpus, err := cgroup.CPUs(root, pid)
	if err != nil {
		return nil, unconfined
	}
	return locate(filepath.Join(root, "sys"), cpus), ""
}

// unconfined is why VMs are not pinned on a node where jobs share cores.
const unconfined = "Slurm does not confine jobs to cores (ConstrainCores)"

// locate finds out of which cores and NUMA nodes the CPUs are. sysfs is where sysfs is mounted.
func locate(sysfs string, cpus []int) (all []plan.CPU) {
	nodes, _ := filepath.Glob(filepath.Join(sysfs, "devices/system/node/node[0-9]*"))
	for _, n := range cpus {
		cpu := plan.CPU{Number: n, Core: firstOfCore(sysfs, n), NUMA: -1}
		if len(nodes) > 1 {
			cpu.NUMA = nodeOfCPU(sysfs, n)
		}
		all = append(all, cpu)
	}
	return all
}

// jobsCPUs returns the CPUs that a job on this node can have to itself, or why it has none.
func jobsCPUs(ctx context.Context, client slurm.Client, root string) (all []plan.CPU, unpinned string, err error) {
	conf, err := client.Conf(ctx)
	if err != nil {
		return nil, "", fmt.Errorf("ask Slurm whether jobs have cores to themselves: %w", err)
	}
	if conf["ConstrainCores"] != "yes" {
		return nil, unconfined, nil
	}
	sys := filepath.Join(root, "sys")
	return locate(sys, cpulist.Read(filepath.Join(sys, "devices/system/cpu/online"))), "", nil
}

// memoryNodes returns the NUMA nodes that have memory and from which a process may take it.
// The kernel refuses a memory policy that names any other node.
func memoryNodes(root string, pid int) []int {
	status, _ := os.ReadFile(filepath.Join(root, "proc", strconv.Itoa(pid), "status"))
	allowed := cpulist.Parse(strings.Join(process.ParseStatus(string(status))["Mems_allowed_list"], ""))
	return slices.DeleteFunc(cpulist.Read(filepath.Join(root, "sys/devices/system/node/has_memory")), func(node int) bool {
		return !slices.Contains(allowed, node)
	})
}

// firstOfCore is the lowest number among the hyper-threads of a CPU's core.
func firstOfCore(sysfs string, cpu int) int {
	all := cpulist.Read(filepath.Join(sysfs, "devices/system/cpu", "cpu"+strconv.Itoa(cpu), "topology/thread_siblings_list"))
	return slices.Min(append(all, cpu))
}
