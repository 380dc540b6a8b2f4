package plan

import (
	"math/bits"
	"slices"

	"github.com/slurm-v/slurm-v/config"
)

// A Topology says how a VM's vCPUs lie in sockets, cores and hyper-threads. Sockets ×
// Cores × Threads is the number of vCPUs that the VM can have, see [Plan.PossibleVCPUs].
type Topology struct{ Sockets, Cores, Threads int }

// MostAPICIDs is how many APIC ids an x86 machine has without interrupt remapping: they are
// of eight bits, and the last one means all processors.
const MostAPICIDs = 255

// APICIDs returns how many APIC ids a machine with the topology needs. An id has a number of
// bits for the thread, the core and the socket each, so there are gaps among the ids unless
// the numbers of threads and cores are powers of two.
func (t Topology) APICIDs() int {
	core := t.Threads - 1 | (t.Cores-1)<<bits.Len(uint(t.Threads-1))
	return 1 + (core | (t.Sockets-1)<<(bits.Len(uint(t.Threads-1))+bits.Len(uint(t.Cores-1))))
}

// Topology is that of the CPUs to which the vCPUs are pinned: one socket for each NUMA
// node, and hyper-threads where each core gives the VM as many. So the guest's scheduler
// and its MPI library know which vCPUs share a core. Other VMs have one socket of cores, and
// so do emulated VMs whose topology needs more APIC ids than there are without remapping.
func (p Plan) Topology(vm VM) Topology {
	all := Topology{Sockets: 1, Cores: p.PossibleVCPUs(), Threads: 1}
	cells := vm.Pinning.Cells
	if len(cells) == 0 {
		return all
	}
	sockets, threads := len(cells), p.threadsOfEachCore(vm)
	for _, c := range cells {
		if len(c.CPUs) != len(cells[0].CPUs) {
			sockets = 1
		}
	}
	lies := Topology{Sockets: sockets, Cores: all.Cores / (sockets * threads), Threads: threads}
	if p.Hardware.Accel == config.AccelTCG && lies.APICIDs() > MostAPICIDs {
		return all
	}
	return lies
}

// Dedicated reports whether the VM's guest is told that its vCPUs have CPUs to themselves.
// libvirt allows this with the host's CPU only.
func (p Plan) Dedicated(vm VM) bool {
	return p.Hardware.Accel == config.AccelKVM && p.QEMU.CPU == "" && len(vm.Pinning.Cells) > 0
}

// PossibleVCPUs is how many vCPUs a VM can have. It has as many as the job asked for. QEMU without
// KVM emulates locked instructions as plain ones in a VM that can have only one vCPU, because
// nobody else could see the difference. VMs that share memory do see it: they lose what the others
// write. So they can have a second one, which they never get.
func (p Plan) PossibleVCPUs() int {
	if p.Hardware.Accel == config.AccelTCG && p.Job.Spec.IVShmem.Devices > 0 {
		return max(p.Job.Spec.VCPUs, 2)
	}
	return p.Job.Spec.VCPUs
}

// threadsOfEachCore returns how many CPUs the VM has of each core; 1 if it has not as many
// of each.
func (p Plan) threadsOfEachCore(vm VM) int {
	of := map[int]int{} // by core
	for _, cpu := range p.Hardware.CPUs {
		if slices.Contains(vm.Pinning.CPUs(), cpu.Number) {
			of[cpu.Core]++
		}
	}
	threads := 0
	for _, n := range of {
		if threads != 0 && n != threads {
			return 1
		}
		threads = n
	}
	return max(threads, 1)
}
