package hypervisor

import (
	"fmt"
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
	switch parts := p.MemoryParts(vm); {
	case len(parts) > 1:
		addCells(d, vm.Pinning.Cells, parts)
	case parts[0].NUMA >= 0:
		d.NUMATune = &libvirtxml.DomainNUMATune{Memory: &libvirtxml.DomainNUMATuneMemory{Mode: near, Nodeset: strconv.Itoa(parts[0].NUMA)}}
	}
}

// near is the NUMA mode of the VMs' memory: it takes memory of another node when the wanted
// node has none left. With "strict" the kernel would kill the VM then. Slurm counts a job's
// memory per node of the cluster, not per NUMA node, and may give the job more than the
// NUMA nodes of its cores have.
const near = "preferred"

// addCells shows a VM that spans NUMA nodes which of its CPUs and memory are on which node,
// so its kernel and MPI library can keep processes close to their memory.
func addCells(d *libvirtxml.Domain, cells []plan.Cell, memory []plan.MemoryPart) {
	d.CPU.Numa, d.NUMATune = &libvirtxml.DomainNuma{}, &libvirtxml.DomainNUMATune{}
	first := 0
	for i, c := range cells {
		id := uint(i)
		d.CPU.Numa.Cell = append(d.CPU.Numa.Cell, libvirtxml.DomainCell{
			ID: &id, CPUs: fmt.Sprintf("%d-%d", first, first+len(c.CPUs)-1), Memory: memory[i].MiB, Unit: "MiB",
		})
		d.NUMATune.MemNodes = append(d.NUMATune.MemNodes, libvirtxml.DomainNUMATuneMemNode{
			CellID: id, Mode: near, Nodeset: strconv.Itoa(memory[i].NUMA),
		})
		first += len(c.CPUs)
	}
}
