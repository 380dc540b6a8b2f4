package plan

import (
	"fmt"
)

// A Pinning says which CPUs a VM has to itself. With the zero Pinning, the kernel places
// the VM on any of the job's CPUs.
//
// libvirt pins threads with sched_setaffinity, so it needs no cgroup of its own. The step's
// cgroup bounds the CPUs.
type Pinning struct {
	Cells    []Cell // vCPU i has the i-th of their CPUs
	Emulator []int  // CPUs of QEMU's other threads
}

// CPUs returns the CPUs of the vCPUs, in the order of the vCPUs.
func (p Pinning) CPUs() (all []int) {
	for _, c := range p.Cells {
		all = append(all, c.CPUs...)
	}
	return all
}

// pin pins all VMs of a node, or tells why they are not pinned.
func pin(hw Hardware, vms, vcpus int) (all []Pinning, unpinned string) {
	all = make([]Pinning, vms)
	switch {
	case hw.Unpinned != "":
		return all, hw.Unpinned
	case len(hw.CPUs) < vms*vcpus:
		return all, fmt.Sprintf("the VMs have %d vCPUs, and the step %d CPUs", vms*vcpus, len(hw.CPUs))
	}
	each, left := allot(hw.CPUs, vms, vcpus)
	for i, mine := range each {
		all[i] = Pinning{Cells: cellsOf(mine), Emulator: emulatorCPUs(mine, each, left)}
	}
	return all, ""
}

// NUMA returns the NUMA node on which the whole VM lies; -1 if it lies on several.
func (p Plan) NUMA(vm VM) int {
	switch cells := vm.Pinning.Cells; {
	case len(cells) == 0 || cells[0].NUMA < 0:
		return p.Hardware.NUMA
	case len(cells) == 1:
		return cells[0].NUMA
	}
	return -1
}
