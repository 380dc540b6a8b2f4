package vmlaunch

import (
	"context"
	"net"
	"path/filepath"

	"libvirt.org/go/libvirtxml"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/internal/emulator"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/ivshmem"
	"github.com/slurm-v/slurm-v/vmlaunch/hypervisor"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
)

// local makes the VMs with the libvirt of this process.
type local struct{ *VMs }

// open opens libvirt's driver and asks it for QEMU's version. For a node's first job, libvirt
// then probes what QEMU can do. This takes seconds, in which the image is staged.
func (l local) open(context.Context) (err error) {
	root := filepath.Join(l.Plan.Run, "libvirt")
	cache := filepath.Join(l.store.state, "libvirt-cache")
	if err := hypervisor.ForbidLinks(root); err != nil {
		return err
	}
	if l.driver, err = hypervisor.Open(root, cache, l.Plan.EmulatorLogs()); err != nil {
		return err
	}
	if l.versions, err = l.driver.Versions(); err != nil {
		return err
	}
	return l.driver.OnStop(l.Stopped)
}

func (l local) image(ctx context.Context) (images.Info, emulator.UEFI, error) { return l.getImage(ctx) }

// network makes the job's network with a tap for every VM.
func (l local) network(ctx context.Context) error {
	if err := l.journal.Intend(recordNetwork, l.Plan.Job.ID.String(), nil); err != nil {
		return err
	}
	if err := l.links.create(ctx); err != nil {
		return err
	}
	l.Underlay = l.links.underlay()
	return l.journal.Done(recordNetwork, l.Plan.Job.ID.String())
}

func (l local) vfs(ctx context.Context) error { return l.leaseVFs(ctx) }

// request has nothing to do: every node makes its own VMs.
func (l local) request(context.Context, images.Info) error { return nil }

func (l local) start(ctx context.Context, m *machine.Machine, image images.Info) error {
	m.Pass(nodeagent.StageDisk)
	if err := l.prepareDisks(ctx, m, image); err != nil {
		return err
	}
	return l.startDomain(m, hypervisor.Describe(l.Plan, m.Plan, m.VFs))
}

// startDomain defines the domain, writes it into the journal and only then starts it. So a
// reclaim that comes during the start finds QEMU by the domain's UUID.
func (v *VMs) startDomain(m *machine.Machine, described *libvirtxml.Domain) (err error) {
	m.Pass(nodeagent.StageDefine)
	if m.Domain, err = v.driver.Define(described); err != nil {
		return err
	}
	if err := v.journal.Intend(recordDomain, m.Plan.UUID, m.Plan.Domain); err != nil {
		return err
	}
	m.Enter(nodeagent.StageStart)
	if err := m.Domain.Start(); err != nil {
		return err
	}
	return v.domainStarted(m)
}

// domainStarted writes into the journal that QEMU runs, checks QEMU's rights, and begins to
// record the console.
func (v *VMs) domainStarted(m *machine.Machine) error {
	if err := v.journal.Done(recordDomain, m.Plan.UUID); err != nil {
		return err
	}
	if err := m.Domain.CheckConfined(v.Plan.Owner); err != nil {
		return err
	}
	console, err := hypervisor.Dial(m.Plan.Console)
	if err != nil {
		return err
	}
	return v.Record(m, console, v.Plan.State)
}

func (l local) dial(_ context.Context, m *machine.Machine) (net.Conn, error) {
	return hypervisor.Dial(m.Plan.Channel)
}

func (l local) vfNICs(m *machine.Machine) []guest.NIC { return vfNICs(m.Plan, m.VFs) }

func (l local) plug(m *machine.Machine, r ivshmem.Region) error { return m.Domain.PlugRegion(r) }

func (l local) forget(m *machine.Machine) { m.Domain.End() }

func (l local) close() {} // libvirt's driver lives as long as the process
