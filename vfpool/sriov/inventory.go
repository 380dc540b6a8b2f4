package sriov

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/slurm-v/slurm-v/vfpool/device"
)

// Link layers, with the kernel's names.
const (
	ether      = "ether"
	infiniband = "infiniband"
)

// PFs returns the physical functions of network cards that can have VFs, by their
// PCI addresses.
func (c *Cards) PFs() ([]device.PF, error) {
	dir := c.sys.path("sys/bus/pci/devices")
	var pfs []device.PF
	for _, pci := range c.sys.list(dir) {
		if !c.isPF(pci) {
			continue
		}
		pf := c.function(pci)
		pf.VFs = c.vfs(pf)
		pf.Unusable = cmp.Or(pf.Unusable, c.unusable(pf))
		pfs = append(pfs, pf)
	}
	slices.SortFunc(pfs, func(a, b device.PF) int { return cmp.Compare(a.PCI, b.PCI) })
	return pfs, nil
}

// networkClass is the prefix of the PCI class of network controllers. Disks and
// accelerators can have VFs, too.
const networkClass = "0x02"

func (c *Cards) isPF(pci string) bool {
	dir := c.sys.device(pci)
	return c.sys.exists(dir+"/sriov_totalvfs") && strings.HasPrefix(c.sys.text(dir, "class"), networkClass)
}

// function reads a PF without its VFs. A PF without a network interface has its PCI
// address as its name.
func (c *Cards) function(pci string) device.PF {
	dir := c.sys.device(pci)
	pf := device.PF{
		Name: c.interfaceOf(pci), Kind: device.SRIOV, PCI: pci, Driver: c.sys.target(dir, "driver"),
		NUMA: c.sys.number(-1, dir, "numa_node"), TotalVFs: c.sys.number(0, dir, "sriov_totalvfs"),
	}
	if pf.Name == "" {
		pf.Name = pci
		pf.Unusable = device.Reason{
			Seen:   "it has no network interface here",
			Advice: fmt.Sprintf("load its driver, or move the interface back from the network namespace it is in (PCI %s, driver %q)", pci, pf.Driver),
		}
	}
	c.readLink(&pf)
	pf.Caps = capsOf(pf)
	pf.Notes = notes(pf)
	return pf
}

// notes lists guarantees that the owners of VMs, or of the machine, do not have.
func notes(pf device.PF) (notes []device.Reason) {
	if !known(pf.Driver) {
		notes = append(notes, device.Reason{Seen: fmt.Sprintf("what its driver %s can is not known", pf.Driver), Advice: "its VFs have no VLAN and no rates"})
	}
	if !pf.Caps.SpoofCheck {
		notes = append(notes, device.Reason{
			Seen:   fmt.Sprintf("its driver %s does not check which addresses a VF sends from", pf.Driver),
			Advice: "only what the fabric does (partitions) keeps jobs apart",
		})
	}
	if pf.Caps.MinIsWeight {
		notes = append(notes, device.Reason{Seen: "its minima are weights", Advice: "a VF without one is left with next to nothing while others with one are busy"})
	}
	return notes
}

// interfaceOf returns the network interface of a PF. Cards with two ports in one
// function have two, cards in switchdev mode one more for every VF.
func (c *Cards) interfaceOf(pci string) string {
	dir := c.sys.device(pci) + "/net"
	names := slices.DeleteFunc(c.sys.list(dir), func(name string) bool {
		port := c.sys.text(dir, name, "phys_port_name")
		return strings.Contains(port, "vf") || strings.Contains(port, "sf")
	})
	if len(names) == 0 {
		return ""
	}
	return slices.MinFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(c.sys.number(0, dir, a, "dev_port"), c.sys.number(0, dir, b, "dev_port")), cmp.Compare(a, b))
	})
}

func (c *Cards) readLink(pf *device.PF) {
	dir := c.sys.device(pf.PCI) + "/net/" + pf.Name
	const arphrdInfiniband = "32"
	if c.sys.text(dir, "type") == arphrdInfiniband {
		pf.LinkLayer = infiniband
		c.readPort(pf, c.sys.number(0, dir, "dev_port")+1)
		return
	}
	pf.LinkLayer = ether
	pf.Up = c.sys.text(dir, "operstate") == "up"
	if speed := c.sys.number(0, dir, "speed"); pf.Up && speed > 0 {
		pf.Speed = uint32(speed)
	}
}

// readPort reads an InfiniBand port: its interface need not be up for its VFs to work.
func (c *Cards) readPort(pf *device.PF, port int) {
	dir := c.sys.device(pf.PCI) + "/infiniband"
	names := c.sys.list(dir)
	if len(names) == 0 {
		return
	}
	dir = fmt.Sprintf("%s/%s/ports/%d", dir, names[0], port)
	if strings.HasSuffix(c.sys.text(dir, "state"), "ACTIVE") {
		pf.Up, pf.Speed = true, parseRate(c.sys.text(dir, "rate"))
	}
}

// parseRate reads the rate of an InfiniBand port, "100 Gb/sec (4X EDR)", in Mb/s.
func parseRate(text string) uint32 {
	number, _, _ := strings.Cut(text, " ")
	gbps, err := strconv.ParseFloat(number, 64)
	if err != nil || gbps < 0 || gbps > 4e6 {
		return 0
	}
	return uint32(gbps * 1000)
}

func (c *Cards) vfs(pf device.PF) (vfs []device.VF) {
	dir := c.sys.device(pf.PCI)
	for index := range c.sys.number(0, dir, "sriov_numvfs") {
		pci := c.sys.target(dir, fmt.Sprintf("virtfn%d", index))
		if pci == "" {
			continue // the VF is just being removed
		}
		vfs = append(vfs, c.vf(pf, index, pci))
	}
	return vfs
}

func (c *Cards) vf(pf device.PF, index int, pci string) device.VF {
	dir := c.sys.device(pci)
	vf := device.VF{PF: pf.Name, Index: index, Kind: device.SRIOV, PCI: pci, Device: pci, NUMA: c.sys.number(-1, dir, "numa_node"), Group: -1}
	if vf.NUMA < 0 {
		vf.NUMA = pf.NUMA
	}
	if group, err := strconv.Atoi(c.sys.target(dir, "iommu_group")); err == nil {
		vf.Group = group
	}
	vf.Unusable = cmp.Or(c.unusableGroup(vf), c.usedByHost(pci))
	return vf
}

var iommuOff = device.Reason{
	Seen:   "it has no IOMMU group",
	Advice: "switch the IOMMU on in the firmware (VT-d, AMD-Vi) and boot with intel_iommu=on (on AMD with amd_iommu=on)",
}

// unusableGroup says why the VF's IOMMU group cannot be given to a VM: devices of one
// group can reach each other's memory.
func (c *Cards) unusableGroup(vf device.VF) device.Reason {
	if vf.Group < 0 {
		return iommuOff
	}
	others := c.sys.list(c.sys.path("sys/kernel/iommu_groups", strconv.Itoa(vf.Group), "devices"))
	others = slices.DeleteFunc(others, func(pci string) bool { return pci == vf.PCI })
	if len(others) == 0 {
		return device.Reason{}
	}
	return device.Reason{
		Seen:   fmt.Sprintf("its IOMMU group %d has other devices (%s)", vf.Group, some(others)),
		Advice: "put the card into a slot whose root port has ACS, or switch ACS on in the firmware",
	}
}

// usedByHost says how the host uses the VF's network interface.
func (c *Cards) usedByHost(pci string) device.Reason {
	dir := c.sys.device(pci) + "/net"
	names := c.sys.list(dir)
	if len(names) == 0 && c.sys.exists(dir) {
		return device.Reason{Seen: "its network interface is in another network namespace", Advice: "a container has it; end that"}
	}
	for _, name := range names {
		if master := c.sys.target(dir+"/"+name, "master"); master != "" {
			return device.Reason{
				Seen:   fmt.Sprintf("its network interface %s is a port of %s on this host", name, master),
				Advice: fmt.Sprintf("ip link set %s nomaster", name),
			}
		}
	}
	return device.Reason{}
}

// some lists at most three of the names.
func some(names []string) string {
	if len(names) > 3 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:3], ", "), len(names)-3)
	}
	return strings.Join(names, ", ")
}

// unusable says why none of a PF's VFs can be used; it is zero if one can.
func (c *Cards) unusable(pf device.PF) device.Reason {
	switch {
	case pf.TotalVFs == 0:
		return device.Reason{
			Seen:   "SR-IOV is switched off in the card",
			Advice: "switch it on in its firmware settings (of NVIDIA cards: mlxconfig set SRIOV_EN=1 NUM_OF_VFS=…) and reboot",
		}
	case len(pf.VFs) == 0:
		return device.Reason{
			Seen:   "it has no VFs",
			Advice: fmt.Sprintf("make them at boot: write create_per_pf = { %s = %d } into [vf] of the configuration, and enable slurmv-vfs.service", pf.Name, pf.TotalVFs),
		}
	case c.links != nil && c.links.Switchdev(pf.PCI):
		return device.Reason{
			Seen:   "its switch is in switchdev mode, in which VFs are not set through the PF",
			Advice: fmt.Sprintf("devlink dev eswitch set pci/%s mode legacy", pf.PCI),
		}
	case !pf.Up:
		return device.Reason{Seen: "its link is down", Advice: fmt.Sprintf("ip link set %s up, and look at the cable and the switch", pf.Name)}
	}
	return noneUsable(pf.VFs)
}

// noneUsable says why none of the VFs can be used; it is zero if one can.
func noneUsable(vfs []device.VF) device.Reason {
	for _, vf := range vfs {
		if vf.Unusable.Seen == "" {
			return device.Reason{}
		}
	}
	first := vfs[0].Unusable
	return device.Reason{Seen: "no VF can be used; for VF 0, " + first.Seen, Advice: first.Advice}
}
