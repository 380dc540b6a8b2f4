package vmlaunch

import (
	"context"
	"fmt"
	"net/netip"
	"os"

	"libvirt.org/go/libvirtxml"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/vmnet"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vfpool"
	"github.com/slurm-v/slurm-v/vfpool/device"
)

// leaseVFs gets the VFs of all VMs of the node, at once.
func (n *Node) leaseVFs(ctx context.Context, cfg config.Config) error {
	if len(n.plan.Job.Spec.SRIOV.VFs) == 0 {
		return nil
	}
	pool, err := vfpool.Open(cfg, n.plan.Job.Node)
	if err != nil {
		return err
	}
	if err := n.journal.Intend(recordVFs, n.plan.Job.ID.String(), nil); err != nil {
		return err
	}
	grants, err := pool.Acquire(ctx, n.plan.claim())
	if err != nil {
		return err
	}
	for _, g := range grants {
		m := n.machines[g.Request.VM]
		m.vfs = append(m.vfs, g)
		n.log.Info("VF", "vm", m.plan.Name, "pf", g.VF.PF, "vf", g.VF.Index, "device", g.VF.Device, "mac", g.Settings.MAC, "note", g.Note)
	}
	return n.journal.Done(recordVFs, n.plan.Job.ID.String())
}

func releaseVFs(ctx context.Context, cfg config.Config, j *journal.Journal) error {
	pool, err := vfpool.Open(cfg, j.Header().Node)
	if err != nil {
		return err
	}
	return pool.Release(ctx, j.ID())
}

// vfHosts names the VFs of the job's VM with that number, vm3-vf0.
func (p Plan) vfHosts(number int) ([]guest.Host, error) {
	vfs, err := p.vfs(number)
	var hosts []guest.Host
	for i, vf := range vfs {
		if vf.Address.IsValid() {
			hosts = append(hosts, guest.Host{Name: fmt.Sprintf("vm%d-vf%d", number, i), Address: vf.Address.Addr().String()})
		}
	}
	return hosts, err
}

// releaseOrphans gives back VFs of jobs without a journal, which somebody has
// removed by hand: a launch begins the journal before it leases.
func releaseOrphans(ctx context.Context, cfg config.Config, node string) error {
	pool, err := vfpool.Open(cfg, node)
	if err != nil {
		return err
	}
	_, err = pool.ReleaseOrphans(ctx, func(id journal.ID) bool {
		_, err := os.Stat(journal.Dir(cfg.StateDir(node), id))
		return err == nil
	})
	return err
}

// vfs gives the VFs of a VM their addresses, which depend on nothing but its
// number in the job.
func (p Plan) vfs(number int) ([]VFPlan, error) {
	wanted := p.Job.Spec.SRIOV.VFs
	vfs := make([]VFPlan, len(wanted))
	for i := range wanted {
		vfs[i].MAC = vmnet.VFMAC(p.Job.ID.Job, number, i).String()
		if p.VFSubnet == "" {
			continue
		}
		subnet, err := netip.ParsePrefix(p.VFSubnet)
		if err != nil {
			return nil, fmt.Errorf("vf.subnet: %w", err)
		}
		addr, err := vmnet.Address(subnet, number*len(wanted)+i)
		if err != nil {
			return nil, fmt.Errorf("vf.subnet: %w", err)
		}
		vfs[i].Address = netip.PrefixFrom(addr, subnet.Bits())
	}
	return vfs, nil
}

// vfNICs are the VFs that the guest agent has something to do with.
func (vm VMPlan) vfNICs() []guest.NIC {
	var nics []guest.NIC
	for _, vf := range vm.VFs {
		if vf.Address.IsValid() {
			nics = append(nics, guest.NIC{MAC: vf.MAC, Address: vf.Address.String()})
		}
	}
	return nics
}

// claim is what the job wants of the node's pool.
func (p Plan) claim() vfpool.Claim {
	c := vfpool.Claim{Job: p.Job.ID, VLAN: p.VLAN, Owner: device.Owner{UID: p.Owner.UID, GID: p.Owner.GID}}
	for _, vm := range p.VMs {
		for i, vf := range p.Job.Spec.SRIOV.VFs {
			c.Requests = append(c.Requests, vfpool.Request{VM: vm.Index, Index: i, NUMA: p.numa(vm), MAC: vm.VFs[i].MAC, VF: vf})
		}
	}
	return c
}

// addVFs passes the VFs to the VM: those of a card as PCI devices, those of a
// bridge as NICs. The pool has set and attached them: libvirt's own <interface
// type='hostdev'> would reset the VLAN and cannot set rates.
func addVFs(d *libvirtxml.Domain, vfs []vfpool.Grant) {
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

// pciAddress reads "0000:01:10.0", which comes from the kernel.
func pciAddress(text string) *libvirtxml.DomainAddressPCI {
	var domain, bus, slot, function uint
	_, _ = fmt.Sscanf(text, "%x:%x:%x.%x", &domain, &bus, &slot, &function)
	return &libvirtxml.DomainAddressPCI{Domain: &domain, Bus: &bus, Slot: &slot, Function: &function}
}
