package hypervisor

import (
	"math/bits"

	"libvirt.org/go/libvirtxml"

	"github.com/slurm-v/slurm-v/ivshmem"
)

// ivshmemBridge is libvirt's number of the PCI bridge into which the IVShmem devices are
// plugged. They are conventional PCI devices, and q35's other slots take only PCI Express
// devices. libvirt wants a number for the bridge's own port too, once the bridge has one.
const (
	ivshmemPort   = 1
	ivshmemBridge = 2
)

// shmemDevice describes a region as a device. Its slot tells the guest the region's index;
// slot 0 is the bridge's own.
func shmemDevice(r ivshmem.Region) *libvirtxml.DomainShmem {
	bus, slot := uint(ivshmemBridge), uint(1+r.Index)
	return &libvirtxml.DomainShmem{
		Name:    r.Name,
		Model:   &libvirtxml.DomainShmemModel{Type: "ivshmem-plain"},
		Size:    &libvirtxml.DomainShmemSize{Value: uint(r.Size >> 20), Unit: "M"},
		Address: &libvirtxml.DomainAddress{PCI: &libvirtxml.DomainAddressPCI{Bus: &bus, Slot: &slot}},
	}
}

// addSharedMemory makes room for the devices: a bridge behind a port of its own, and
// address space. Regions are aligned to their size, so twice their sum always holds them.
func (p describer) addSharedMemory(d *libvirtxml.Domain) {
	if p.Job.Spec.IVShmem.Devices == 0 || p.NVDIMM {
		return
	}
	if hole := p.PCIHole(); hole != 0 {
		d.Devices.Controllers = append(d.Devices.Controllers, libvirtxml.DomainController{
			Type: "pci", Model: "pcie-root", Index: new(uint),
			PCI: &libvirtxml.DomainControllerPCI{Hole64: &libvirtxml.DomainControllerPCIHole64{
				Size: 1 << bits.Len64(uint64(hole-1)) << 10, Unit: "KiB",
			}},
		})
	}
	port, bridge := uint(ivshmemPort), uint(ivshmemBridge)
	d.Devices.Controllers = append(d.Devices.Controllers,
		libvirtxml.DomainController{Type: "pci", Model: "pcie-root-port", Index: &port},
		libvirtxml.DomainController{Type: "pci", Model: "pcie-to-pci-bridge", Index: &bridge})
}
