package plan

import (
	"errors"
	"fmt"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/emulator"
	"github.com/slurm-v/slurm-v/jobspec"
)

// Hardware is the part of the node's hardware that a plan depends on.
type Hardware struct {
	Accel config.Accel
	NUMA  int // node of the job's cores; -1 if they have none or several

	CPUs     []CPU  // that the job has to itself
	Unpinned string // why that is not known, and VMs are not pinned
	Memory   []int  // NUMA nodes of whose memory it may have some
	Vhost    bool   // the kernel moves the frames of virtio NICs (vhost-net)
	TopoExt  bool   // the host's CPU tells by AMD's topology extensions which hyper-threads share a core
	Uncached bool   // KVM lets guests map the memory of PCI devices uncached, as their kernels do (AMD)

	Foreign bool   // another program makes the VMs and gives them memory and CPUs
	Cluster string // tells VMs in networks of neutron from those of other clusters; "" without neutron

	Missing emulator.Missing // devices that the node's QEMU does not know
}

// check refuses a request for what the node's QEMU cannot do. lack is what it has not for shared memory.
func (h Hardware) check(spec jobspec.Spec, lack error) error {
	if lack != nil && spec.IVShmem.Devices > 0 {
		return fmt.Errorf("--ivshmem: QEMU on this node has %w; leave the option out, or ask the administrator for another QEMU ([qemu] emulator)", lack)
	}
	if h.Foreign && spec.HugePages.Size() != 0 {
		return errors.New("--vm-hugepages: flavors of OpenStack say which pages a VM's memory has; leave the option out")
	}
	if h.Accel == config.AccelTCG && spec.VCPUs > MostAPICIDs {
		return fmt.Errorf("--vcpu-per-vm: %d is not possible on this node, which has no KVM: an emulated VM has %d CPUs at most", spec.VCPUs, MostAPICIDs)
	}
	return nil
}

// sharedMemory chooses the device by which VMs share memory. nova's VMs have no slots for NVDIMMs.
func (h Hardware) sharedMemory(wish config.IVShmemDevice) (config.IVShmemDevice, error) {
	if h.Foreign {
		return config.IVShmemPCI, nil
	}
	return h.Missing.SharedMemory(wish, h.Uncached)
}
