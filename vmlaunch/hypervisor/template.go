package hypervisor

import (
	"github.com/google/uuid"
	"libvirt.org/go/libvirtxml"

	"github.com/slurm-v/slurm-v/ivshmem"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// The memory of a VM as libvirt calls it, and as it is called where it is mapped from a
// template.
const (
	LibvirtMemory  = "pc.ram"
	TemplateMemory = "template.ram"
)

// TemplateRoom is how much shared memory a template boots with, in MiB: all that a VM can have
// which is restored from it. See [plan.Plan.PCIHole].
const TemplateRoom = plan.FirmwareHole / 2

// quietNICs are NICs as restored guests should have them. They do not announce the one that
// is there, which has no address yet. Nor have they a link state: from one that is plugged
// in, Linux first learns that the link is down, then that it is up, and it takes a link's
// changes at most once a second.
var quietNICs = []string{"-global", "virtio-net-device.guest_announce=off", "-global", "virtio-net-device.status=off"}

// DescribeTemplate describes the VM that becomes a template: what cannot be plugged into a
// running VM is there, as much as the site's slots say, and room for what can. Its mounts
// show the directory nothing.
func DescribeTemplate(p plan.Plan, vm plan.VM, nothing string, room ivshmem.Region) *libvirtxml.Domain {
	return describer{p}.template(vm, nothing, room)
}

func (p describer) template(vm plan.VM, nothing string, room ivshmem.Region) *libvirtxml.Domain {
	p.Job.Spec.Mounts = nil
	for range p.Warm.MountSlots {
		p.Job.Spec.Mounts = append(p.Job.Spec.Mounts, jobspec.Mount{Host: nothing})
	}
	p.Job.Spec.IVShmem = jobspec.IVShmem{Devices: 1, SizeMiB: 1} // for the bridge that they are plugged into
	d := p.domain(vm, nil)
	d.GenID = &libvirtxml.DomainGenID{Value: uuid.NewString()}
	d.QEMUCommandline.Args = append(d.QEMUCommandline.Args, arguments(quietNICs...)...)
	d.Devices.Shmems = []libvirtxml.DomainShmem{*shmemDevice(room)}
	placeOnRoot(d)
	for i := range p.Warm.DeviceSlots {
		index := uint(ivshmemBridge + 1 + i)
		d.Devices.Controllers = append(d.Devices.Controllers, libvirtxml.DomainController{Type: "pci", Model: "pcie-root-port", Index: &index})
	}
	return d
}

// firstSlot is where the devices begin on the root bus. Those before it are the machine's
// own, as are those from 31 downwards.
const firstSlot = 4

// placeOnRoot puts all devices on the root bus itself. libvirt would give each a port of
// its own, which QEMU and the guest have to deal with, and from which nothing is ever
// unplugged here. The ports that there are stay free.
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
