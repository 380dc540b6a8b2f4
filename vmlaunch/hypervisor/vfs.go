package hypervisor

import (
	"fmt"
	"slices"

	"libvirt.org/go/libvirtxml"

	"github.com/slurm-v/slurm-v/vfpool"
	"github.com/slurm-v/slurm-v/vfpool/device"
)

// addVFs passes the VFs to the VM: VFs of a card as PCI devices, VFs of a bridge as NICs.
// The pool has already set and attached them. libvirt's <interface type='hostdev'> is not
// used, because it would reset the VLAN and cannot set rates.
func addVFs(d *libvirtxml.Domain, vfs []vfpool.Grant) {
	addVSock(d, vfs)
	for _, g := range vfs {
		if g.VF.Kind == device.Software {
			d.Devices.Interfaces = append(d.Devices.Interfaces, onTap(g.VF.Device, g.Settings.MAC))
			continue
		}
		d.Devices.Hostdevs = append(d.Devices.Hostdevs, libvirtxml.DomainHostdev{
			Managed: "no",
			SubsysPCI: &libvirtxml.DomainHostdevSubsysPCI{
				Driver: &libvirtxml.DomainHostdevSubsysPCIDriver{Name: "vfio"},
				Source: &libvirtxml.DomainHostdevSubsysPCISource{Address: pciAddress(g.VF.PCI)},
			},
			ROM: &libvirtxml.DomainROM{Enabled: "no"},
		})
	}
}

// addVSock adds the device through which the driver of a Slingshot card's VF, in the guest,
// reaches that of its PF. libvirt finds a CID that is free, and opens the device itself.
func addVSock(d *libvirtxml.Domain, vfs []vfpool.Grant) {
	if slices.ContainsFunc(vfs, func(g vfpool.Grant) bool { return g.Slingshot != "" }) {
		d.Devices.VSock = &libvirtxml.DomainVSock{Model: "virtio", CID: &libvirtxml.DomainVSockCID{Auto: "yes"}}
	}
}

// haveCards reports whether VFs of cards are among vfs: they reach the guest's memory
// themselves, so all of it is pinned.
func haveCards(vfs []vfpool.Grant) bool {
	return slices.ContainsFunc(vfs, func(g vfpool.Grant) bool { return g.VF.Kind == device.SRIOV })
}

// pciAddress parses an address like "0000:01:10.0". The kernel wrote it, so it is
// well-formed.
func pciAddress(text string) *libvirtxml.DomainAddressPCI {
	var domain, bus, slot, function uint
	_, _ = fmt.Sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function)
	return &libvirtxml.DomainAddressPCI{Domain: &domain, Bus: &bus, Slot: &slot, Function: &function}
}
