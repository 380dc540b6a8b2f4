package hypervisor

import (
	"fmt"
	"slices"
	"strconv"

	"libvirt.org/go/libvirtxml"

	"github.com/slurm-v/slurm-v/internal/cpulist"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// addPinning gives the VM its CPUs, and memory close to them.
func (p describer) addPinning(d *libvirtxml.Domain, vm plan.VM) {
	if len(vm.Pinning.Cells) == 0 {
		return
	}
	d.CPUTune = &libvirtxml.DomainCPUTune{EmulatorPin: &libvirtxml.DomainCPUTuneEmulatorPin{CPUSet: cpulist.Format(vm.Pinning.Emulator)}}
	for i, cpu := range vm.Pinning.CPUs() {
		d.CPUTune.VCPUPin = append(d.CPUTune.VCPUPin, libvirtxml.DomainCPUTuneVCPUPin{VCPU: uint(i), CPUSet: strconv.Itoa(cpu)})
	}
	if len(vm.Pinning.Cells) > 1 {
		p.addCells(d, vm.Pinning.Cells)
	} else if node := vm.Pinning.Cells[0].NUMA; slices.Contains(p.Hardware.Memory, node) {
		d.NUMATune = &libvirtxml.DomainNUMATune{Memory: &libvirtxml.DomainNUMATuneMemory{Mode: near, Nodeset: strconv.Itoa(node)}}
	}
}

// near is the NUMA mode of the VMs' memory: it takes memory of another node when the wanted
// node has none left. With "strict" the kernel would kill the VM then. Slurm counts a job's
// memory per node of the cluster, not per NUMA node, and may give the job more than the
// NUMA nodes of its cores have.
const near = "preferred"

// addCells shows a VM that spans NUMA nodes which of its CPUs and memory are on which node,
// so its kernel and MPI library can keep processes close to their memory.
func (p describer) addCells(d *libvirtxml.Domain, cells []plan.Cell) {
	sizes := p.cellSizes(cells)
	if sizes == nil || slices.ContainsFunc(cells, func(c plan.Cell) bool { return !slices.Contains(p.Hardware.Memory, c.NUMA) }) {
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

// cellSizes divides the VM's memory among the cells in proportion to their CPUs, in whole
// pages, in MiB. It returns nil if a cell would get no page.
func (p describer) cellSizes(cells []plan.Cell) []uint {
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
