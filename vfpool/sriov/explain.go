package sriov

import (
	"fmt"
	"slices"

	"github.com/slurm-v/slurm-v/vfpool/device"
)

// A Finding is a reason why VFs may not be usable.
type Finding struct {
	PF string // "" for the whole node
	device.Reason
	Fatal bool // no VF of the PF, or of the node, can be used
}

// Explain returns the reasons why VFs of the machine below root may not be usable;
// nothing if all are usable.
func Explain(root string) []Finding {
	links := Netlink()
	if root != "/" {
		links = nil
	}
	node := Open(root, links)
	return node.Explain(node.PFs())
}

var noCard = device.Reason{
	Seen:   "there is no network card with SR-IOV",
	Advice: "switch SR-IOV on in the machine's firmware and in the card's, and load the card's driver; without such a card, VFs can be made of software ([vf.software] of the configuration)",
}

// Explain is [Explain] for the results of [Cards.PFs].
func (c *Cards) Explain(pfs []device.PF, err error) []Finding {
	if err != nil {
		return []Finding{{Reason: device.Reason{Seen: err.Error(), Advice: "mount sysfs on /sys"}, Fatal: true}}
	}
	if len(pfs) == 0 {
		return []Finding{{Reason: noCard, Fatal: true}}
	}
	findings := c.explainIOMMU()
	nodeSaysIt := len(findings) > 0
	for _, pf := range pfs {
		if !nodeSaysIt || pf.Unusable.Advice != iommuOff.Advice {
			findings = append(findings, c.explainPF(pf)...)
		}
	}
	return append(findings, c.explainVFIO(pfs)...)
}

func (c *Cards) explainIOMMU() []Finding {
	if len(c.sys.list(c.sys.path("sys/kernel/iommu_groups"))) > 0 {
		return nil
	}
	return []Finding{{Reason: device.Reason{Seen: "the IOMMU is off", Advice: iommuOff.Advice}, Fatal: true}}
}

func (c *Cards) explainPF(pf device.PF) []Finding {
	if pf.Unusable.Seen != "" {
		return []Finding{{pf.Name, pf.Unusable, true}}
	}
	findings := append(explainVFs(pf), c.explainDrivers(pf)...)
	for _, note := range pf.Notes {
		findings = append(findings, Finding{pf.Name, note, false})
	}
	return findings
}

// explainDrivers looks for VFs that are bound to drivers of the host: unbinding and
// rebinding them takes seconds.
func (c *Cards) explainDrivers(pf device.PF) []Finding {
	for _, vf := range pf.VFs {
		if driver := c.sys.target(c.sys.device(vf.PCI), "driver"); driver != "" && driver != vfioPCI {
			return []Finding{{PF: pf.Name, Reason: device.Reason{
				Seen:   fmt.Sprintf("its VFs are bound to the driver %s, from which each job takes them", driver),
				Advice: fmt.Sprintf("jobs start sooner if, at boot, before the VFs are made: echo 0 > /sys/bus/pci/devices/%s/sriov_drivers_autoprobe", pf.PCI),
			}}}
		}
	}
	return nil
}

// explainVFs makes one finding of all VFs that are unusable for the same reason.
func explainVFs(pf device.PF) (findings []Finding) {
	var reasons []device.Reason
	vfs := map[device.Reason][]string{}
	for _, vf := range pf.VFs {
		if vf.Unusable.Seen == "" {
			continue
		}
		if !slices.Contains(reasons, vf.Unusable) {
			reasons = append(reasons, vf.Unusable)
		}
		vfs[vf.Unusable] = append(vfs[vf.Unusable], fmt.Sprint(vf.Index))
	}
	for _, reason := range reasons {
		seen := fmt.Sprintf("VF %s: %s", some(vfs[reason]), reason.Seen)
		findings = append(findings, Finding{PF: pf.Name, Reason: device.Reason{Seen: seen, Advice: reason.Advice}})
	}
	return findings
}

// explainVFIO looks for vfio-pci, the driver that hands VFs to VMs.
func (c *Cards) explainVFIO(pfs []device.PF) []Finding {
	if c.sys.exists(c.sys.driver(vfioPCI, "")) || !slices.ContainsFunc(pfs, func(pf device.PF) bool { return len(pf.VFs) > 0 }) {
		return nil
	}
	return []Finding{{Reason: device.Reason{
		Seen:   "the module vfio-pci is not loaded",
		Advice: "modprobe vfio-pci, and list it in /etc/modules-load.d; a launch tries to load it",
	}}}
}
