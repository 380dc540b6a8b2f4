package vmlaunch

import (
	"fmt"
	"slices"
	"strconv"

	"libvirt.org/go/libvirtxml"
)

// A Pinning says which CPUs a VM has to itself. The zero Pinning is none: the VM runs
// on the job's CPUs as the kernel likes.
//
// libvirt pins threads by sched_setaffinity, so it needs no cgroup of its own; the
// step's stays the bound of what can be asked for.
type Pinning struct {
	Cells    []Cell // vCPU i has the i-th of their CPUs
	Emulator []int  // CPUs of QEMU's other threads
}

// CPUs are those of the vCPUs, in their order.
func (p Pinning) CPUs() (all []int) {
	for _, c := range p.Cells {
		all = append(all, c.CPUs...)
	}
	return all
}

// pin decides for all VMs of a node, or tells why they are not pinned.
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

// logPinning says on which CPUs the VMs will run.
func (n *Node) logPinning() {
	if n.plan.Unpinned != "" {
		n.log.Info("vCPUs are not pinned", "reason", n.plan.Unpinned)
		return
	}
	for _, vm := range n.plan.VMs {
		n.log.Info("pinned", "vm", vm.Name, "cpus", cpuList(vm.Pinning.CPUs()), "emulator", cpuList(vm.Pinning.Emulator))
	}
}

// numa is the node on which the whole VM lies; -1 if there is none.
func (p Plan) numa(vm VMPlan) int {
	switch cells := vm.Pinning.Cells; {
	case len(cells) == 0 || cells[0].NUMA < 0:
		return p.Hardware.NUMA
	case len(cells) == 1:
		return cells[0].NUMA
	}
	return -1
}

// addPinning gives the VM its CPUs, and memory near them.
func (p Plan) addPinning(d *libvirtxml.Domain, vm VMPlan) {
	if len(vm.Pinning.Cells) == 0 {
		return
	}
	d.CPUTune = &libvirtxml.DomainCPUTune{EmulatorPin: &libvirtxml.DomainCPUTuneEmulatorPin{CPUSet: cpuList(vm.Pinning.Emulator)}}
	for i, cpu := range vm.Pinning.CPUs() {
		d.CPUTune.VCPUPin = append(d.CPUTune.VCPUPin, libvirtxml.DomainCPUTuneVCPUPin{VCPU: uint(i), CPUSet: strconv.Itoa(cpu)})
	}
	if len(vm.Pinning.Cells) > 1 {
		p.addCells(d, vm.Pinning.Cells)
	} else if node := vm.Pinning.Cells[0].NUMA; slices.Contains(p.Hardware.Memory, node) {
		d.NUMATune = &libvirtxml.DomainNUMATune{Memory: &libvirtxml.DomainNUMATuneMemory{Mode: near, Nodeset: strconv.Itoa(node)}}
	}
}

// near takes memory of another node when there is none left on the wanted one. With
// "strict" the VM would be killed then: Slurm counts a job's memory per node of the
// cluster, not per NUMA node, and may give it more than those of its cores have.
const near = "preferred"

// addCells makes a VM that spans NUMA nodes see that, so that its kernel and MPI
// library keep processes and their memory together.
func (p Plan) addCells(d *libvirtxml.Domain, cells []Cell) {
	sizes := p.cellSizes(cells)
	if sizes == nil || slices.ContainsFunc(cells, func(c Cell) bool { return !slices.Contains(p.Hardware.Memory, c.NUMA) }) {
		return
	}
	d.CPU.Numa, d.NUMATune = &libvirtxml.DomainNuma{}, &libvirtxml.DomainNUMATune{}
	first := 0
	for i, c := range cells {
		id := uint(i)
		d.CPU.Numa.Cell = append(d.CPU.Numa.Cell, libvirtxml.DomainCell{
			ID: &id, CPUs: fmt.Sprintf("%d-%d", first, first+len(c.CPUs)-1), Memory: sizes[i], Unit: "MiB",
		})
		d.NUMATune.MemNodes = append(d.NUMATune.MemNodes, libvirtxml.DomainNUMATuneMemNode{
			CellID: id, Mode: near, Nodeset: strconv.Itoa(c.NUMA),
		})
		first += len(c.CPUs)
	}
}

// cellSizes divides the VM's memory by the cells' CPUs into whole pages, in MiB; nil
// if there are too few of them.
func (p Plan) cellSizes(cells []Cell) []uint {
	page := max(p.Hardware.HugePage>>10, 1)
	left := uint(p.Job.Spec.MemoryMiB) / page
	cpus := uint(p.Job.Spec.VCPUs)
	var sizes []uint
	for _, c := range cells {
		n := uint(len(c.CPUs))
		part := left * n / cpus
		if part == 0 {
			return nil
		}
		sizes = append(sizes, part*page)
		left, cpus = left-part, cpus-n
	}
	return sizes
}
