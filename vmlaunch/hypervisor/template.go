package hypervisor

import (
	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/ivshmem"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// The ids of a VM's memory: libvirt's, and ours for memory that is mapped from a template.
const (
	LibvirtMemory  = "pc.ram"
	TemplateMemory = "template.ram"
)

// quietNICs sets NICs up for restored guests. The template's NIC does not announce itself,
// because it has no address yet. NICs have no link state: Linux would first see that a
// plugged-in NIC has no link, then that it has one, and Linux handles such changes at most
// once a second.
var quietNICs = []string{"-global", "virtio-net-device.guest_announce=off", "-global", "virtio-net-device.status=off"}

// DescribeTemplate describes the VM that becomes a template. Devices that cannot be plugged
// into a running VM are there from the start, as many as the site's slots say. For the
// others there is room; without the PCI devices of IVShmem, room is nil. The template's mounts show the
// directory nothing. Its guest knows how the vCPUs of the plan's VMs lie, and that they have CPUs to
// themselves. The template itself is not pinned: root makes templates outside of jobs, where it has no CPUs.
func DescribeTemplate(p plan.Plan, vm plan.VM, nothing string, room *ivshmem.Region) *libvirtxml.Domain {
	return describer{p}.template(vm, nothing, room)
}

func (p describer) template(vm plan.VM, nothing string, room *ivshmem.Region) *libvirtxml.Domain {
	p.Job.Spec.Mounts = nil
	for range p.Warm.MountSlots {
		p.Job.Spec.Mounts = append(p.Job.Spec.Mounts, jobspec.Mount{Host: nothing})
	}
	p.Job.Spec.IVShmem = jobspec.IVShmem{}
	port := uint(ivshmemPort) // the first that is free
	if room != nil {
		p.Job.Spec.IVShmem = jobspec.IVShmem{Devices: 1, SizeMiB: 1} // the devices' bridge must be there
		port = ivshmemBridge + 1
	}
	if p.NVDIMM {
		p.Job.Spec.IVShmem = jobspec.IVShmem{Devices: config.MaxIVShmem, SizeMiB: plan.TemplateRoom/config.MaxIVShmem + 1}
	}
	d := p.domain(vm, nil)
	d.CPUTune, d.NUMATune = nil, nil
	d.GenID = &libvirtxml.DomainGenID{Value: uuid.NewString()}
	d.QEMUCommandline = p.commandLine(quietNICs...)
	if room != nil {
		d.Devices.Shmems = []libvirtxml.DomainShmem{*shmemDevice(*room)}
	}
	placeOnRoot(d)
	for i := range p.Warm.DeviceSlots {
		index := port + uint(i)
		d.Devices.Controllers = append(d.Devices.Controllers, libvirtxml.DomainController{Type: "pci", Model: "pcie-root-port", Index: &index})
	}
	return d
}

// firstSlot is the first slot of the VM's devices on the root bus. The machine itself uses
// the slots below it, and the highest ones from 31 downwards.
const firstSlot = 4

// placeOnRoot puts all devices on the root bus itself. libvirt would give each device a
// port of its own, which costs QEMU and the guest time. Ports are needed only to unplug
// devices, which never happens to these. The ports that exist stay free for devices plugged
// in later.
func placeOnRoot(d *libvirtxml.Domain) {
	slot := uint(firstSlot)
	place := func() *libvirtxml.DomainAddress {
		bus, here := uint(0), slot
		slot++
		return &libvirtxml.DomainAddress{PCI: &libvirtxml.DomainAddressPCI{Bus: &bus, Slot: &here}}
	}
	v := d.Devices
	for i := range v.Disks {
		v.Disks[i].Address = place()
	}
	for i := range v.Interfaces {
		v.Interfaces[i].Address = place()
	}
	for i := range v.Filesystems {
		v.Filesystems[i].Address = place()
	}
	for i := range v.RNGs {
		v.RNGs[i].Address = place()
	}
	for i := range v.Controllers {
		if v.Controllers[i].Type == "virtio-serial" {
			v.Controllers[i].Address = place()
		}
	}
}
