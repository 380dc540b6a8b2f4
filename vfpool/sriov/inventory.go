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
func (n *Node) PFs() ([]device.PF, error) {
	dir := n.sys.path("sys/bus/pci/devices")
	var pfs []device.PF
	for _, pci := range n.sys.list(dir) {
		if !n.isPF(pci) {
			continue
		}
		pf := n.function(pci)
		pf.VFs = n.vfs(pf)
		pf.Unusable = cmp.Or(pf.Unusable, n.unusable(pf))
		pfs = append(pfs, pf)
	}
	slices.SortFunc(pfs, func(a, b device.PF) int { return cmp.Compare(a.PCI, b.PCI) })
	return pfs, nil
}

// networkClass is the prefix of the PCI class of network controllers. Disks and
// accelerators can have VFs, too.
const networkClass = "0x02"

func (n *Node) isPF(pci string) bool {
	dir := n.sys.device(pci)
	return n.sys.exists(dir+"/sriov_totalvfs") && strings.HasPrefix(n.sys.text(dir, "class"), networkClass)
}

// function reads a PF without its VFs. A PF without a network interface has its PCI
// address as its name.
func (n *Node) function(pci string) device.PF {
	dir := n.sys.device(pci)
	pf := device.PF{
		Name: n.interfaceOf(pci), Kind: device.SRIOV, PCI: pci, Driver: n.sys.target(dir, "driver"),
		NUMA: n.sys.number(-1, dir, "numa_node"), TotalVFs: n.sys.number(0, dir, "sriov_totalvfs"),
	}
	if pf.Name == "" {
		pf.Name = pci
		pf.Unusable = device.Reason{
			Seen:   "it has no network interface here",
			Advice: fmt.Sprintf("load its driver, or move the interface back from the network namespace it is in (PCI %s, driver %q)", pci, pf.Driver),
		}
	}
	n.readLink(&pf)
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
func (n *Node) interfaceOf(pci string) string {
	dir := n.sys.device(pci) + "/net"
	names := slices.DeleteFunc(n.sys.list(dir), func(name string) bool {
		port := n.sys.text(dir, name, "phys_port_name")
		return strings.Contains(port, "vf") || strings.Contains(port, "sf")
	})
	if len(names) == 0 {
		return ""
	}
	return slices.MinFunc(names, func(a, b string) int {
		return cmp.Or(cmp.Compare(n.sys.number(0, dir, a, "dev_port"), n.sys.number(0, dir, b, "dev_port")), cmp.Compare(a, b))
	})
}

func (n *Node) readLink(pf *device.PF) {
	dir := n.sys.device(pf.PCI) + "/net/" + pf.Name
	const arphrdInfiniband = "32"
	if n.sys.text(dir, "type") == arphrdInfiniband {
		pf.LinkLayer = infiniband
		n.readPort(pf, n.sys.number(0, dir, "dev_port")+1)
		return
	}
	pf.LinkLayer = ether
	pf.Up = n.sys.text(dir, "operstate") == "up"
	if speed := n.sys.number(0, dir, "speed"); pf.Up && speed > 0 {
		pf.Speed = uint32(speed)
	}
}

// readPort reads an InfiniBand port: its interface need not be up for its VFs to work.
func (n *Node) readPort(pf *device.PF, port int) {
	dir := n.sys.device(pf.PCI) + "/infiniband"
	names := n.sys.list(dir)
	if len(names) == 0 {
		return
	}
	dir = fmt.Sprintf("%s/%s/ports/%d", dir, names[0], port)
	if strings.HasSuffix(n.sys.text(dir, "state"), "ACTIVE") {
		pf.Up, pf.Speed = true, parseRate(n.sys.text(dir, "rate"))
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

func (n *Node) vfs(pf device.PF) (vfs []device.VF) {
	dir := n.sys.device(pf.PCI)
	for index := range n.sys.number(0, dir, "sriov_numvfs") {
		pci := n.sys.target(dir, fmt.Sprintf("virtfn%d", index))
		if pci == "" {
			continue // the VF is just being removed
		}
		vfs = append(vfs, n.vf(pf, index, pci))
	}
	return vfs
}

func (n *Node) vf(pf device.PF, index int, pci string) device.VF {
	dir := n.sys.device(pci)
	vf := device.VF{PF: pf.Name, Index: index, Kind: device.SRIOV, PCI: pci, Device: pci, NUMA: n.sys.number(-1, dir, "numa_node"), Group: -1}
	if vf.NUMA < 0 {
		vf.NUMA = pf.NUMA
	}
	if group, err := strconv.Atoi(n.sys.target(dir, "iommu_group")); err == nil {
		vf.Group = group
	}
	vf.Unusable = cmp.Or(n.unusableGroup(vf), n.usedByHost(pci))
	return vf
}

var iommuOff = device.Reason{
	Seen:   "it has no IOMMU group",
	Advice: "switch the IOMMU on in the firmware (VT-d, AMD-Vi) and boot with intel_iommu=on (on AMD with amd_iommu=on)",
}

// unusableGroup says why the VF's IOMMU group cannot be given to a VM: devices of one
// group can reach each other's memory.
func (n *Node) unusableGroup(vf device.VF) device.Reason {
	if vf.Group < 0 {
		return iommuOff
	}
	others := n.sys.list(n.sys.path("sys/kernel/iommu_groups", strconv.Itoa(vf.Group), "devices"))
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
func (n *Node) usedByHost(pci string) device.Reason {
	dir := n.sys.device(pci) + "/net"
	names := n.sys.list(dir)
	if len(names) == 0 && n.sys.exists(dir) {
		return device.Reason{Seen: "its network interface is in another network namespace", Advice: "a container has it; end that"}
	}
	for _, name := range names {
		if master := n.sys.target(dir+"/"+name, "master"); master != "" {
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
func (n *Node) unusable(pf device.PF) device.Reason {
	switch {
	case pf.TotalVFs == 0:
		return device.Reason{
			Seen:   "SR-IOV is switched off in the card",
			Advice: "switch it on in its firmware settings (of NVIDIA cards: mlxconfig set SRIOV_EN=1 NUM_OF_VFS=…) and reboot",
		}
	case len(pf.VFs) == 0:
		return device.Reason{
			Seen:   "it has no VFs",
			Advice: fmt.Sprintf("make them at boot: echo 0 > %[1]s/sriov_drivers_autoprobe; echo %[2]d > %[1]s/sriov_numvfs", "/sys/bus/pci/devices/"+pf.PCI, pf.TotalVFs),
		}
	case n.links != nil && n.links.Switchdev(pf.PCI):
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
