package vmlaunch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/bits"
	"os"
	"slices"
	"time"

	"libvirt.org/go/libvirtxml"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/ivshmem"
	"github.com/slurm-v/slurm-v/journal"
)

// sharedMemory is the regions that all VMs of the node have, device by device.
type sharedMemory struct {
	regions []ivshmem.Region
	memory  []*ivshmem.Memory // of the same, once made is closed
	made    chan struct{}
}

// regionsHere are those of the job's node.
func (n *Node) regionsHere(cfg config.Config) ivshmem.Node {
	return ivshmem.Open(cfg.StateDir(n.plan.Job.Node), n.plan.Job.Node)
}

// regionOwner is whose QEMU maps the job's regions.
func (n *Node) regionOwner() ivshmem.Owner {
	return ivshmem.Owner{UID: n.plan.Owner.UID, GID: n.plan.Owner.GID}
}

// leaseRegions writes down which regions the job is to have, if the site allows
// that much.
func (n *Node) leaseRegions(cfg config.Config) error {
	job, on := n.plan.Job, n.regionsHere(cfg)
	for k := range job.Spec.IVShmem.Devices {
		r := n.withHugePages(on.New(job.ID, k, n.regionSize()), cfg.IVShmem.HugePage)
		if err := n.journal.Intend(recordRegion, r.Name, r); err != nil {
			return err
		}
		n.shared.regions = append(n.shared.regions, r)
	}
	if len(n.shared.regions) == 0 {
		return nil
	}
	return admitRegions(cfg, job.Node)
}

// withHugePages makes the region one of huge pages, if the site wants that and the node
// can.
func (n *Node) withHugePages(r ivshmem.Region, page config.Size) ivshmem.Region {
	if page == 0 {
		return r
	}
	r, err := r.OnHugePages(page.MiB() << 20)
	n.logOrdinary(r, err)
	return r
}

// logOrdinary writes down why a region is of ordinary pages, if there is a reason.
func (n *Node) logOrdinary(r ivshmem.Region, why error) {
	if why != nil {
		n.log.Warn("shared memory has no huge pages", "device", r.Index, "reason", why)
	}
}

// admitRegions holds what all jobs of the node have against the site's limit. A
// job's own regions are in its journal already: of two jobs that come at once,
// both may then be refused, but never too much is given.
func admitRegions(cfg config.Config, node string) error {
	held, err := regionsHeld(cfg.StateDir(node))
	if err != nil {
		return err
	}
	if all, limit := config.Size((held+1<<20-1)>>20), cfg.Limits.IVShmemPerNode; all > limit {
		return fmt.Errorf("the jobs on node %s would have %s of shared memory (--ivshmem), and this site allows %s (limits.ivshmem_per_node); wait for other jobs, or ask for less", node, all, limit)
	}
	return nil
}

// regionsHeld adds up the regions of all jobs, in bytes. A reboot has taken those
// of before with it.
func regionsHeld(state string) (sum int64, err error) {
	ids, err := journal.List(state)
	boot, bootErr := journal.BootID()
	if err := errors.Join(err, bootErr); err != nil {
		return 0, err
	}
	for _, id := range ids {
		s, err := journal.Read(state, id)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			slog.Warn("the shared memory of a job is not known", "job", id, "error", err)
		}
		if s.Header.BootID != boot {
			continue
		}
		for _, r := range s.Held {
			var region ivshmem.Region
			if r.Kind == recordRegion && r.Decode(&region) == nil {
				sum += region.Size
			}
		}
	}
	return sum, nil
}

// makeRegions takes the memory. It may take seconds, in which the VMs boot.
func (n *Node) makeRegions(ctx context.Context, cfg config.Config) error {
	on, owner := n.regionsHere(cfg), n.regionOwner()
	for _, r := range n.shared.regions {
		m, err := on.Create(ctx, r, owner, n.plan.Hardware.NUMA)
		if err != nil {
			return err
		}
		n.logOrdinary(r, m.Ordinary)
		n.shared.memory = append(n.shared.memory, m)
		if err := n.journal.Done(recordRegion, r.Name); err != nil {
			return err
		}
	}
	close(n.shared.made)
	return nil
}

// plugRegions gives a running VM its devices, when the memory is there.
func (n *Node) plugRegions(ctx context.Context, m *machine) error {
	select {
	case <-n.shared.made:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for _, r := range n.shared.regions {
		if err := m.plug(shmemDevice(r)); err != nil {
			return fmt.Errorf("plug shared memory into domain %s: %w", m.plan.Domain, err)
		}
	}
	return nil
}

// ivshmemBridge is libvirt's number of the PCI bridge that the devices are plugged
// into: they are no PCI Express devices, which alone go into q35's other slots. The
// port that the bridge itself is plugged into has to be named, too, if the bridge is.
const (
	ivshmemPort   = 1
	ivshmemBridge = 2
)

// shmemDevice describes a region as a device. Its slot tells the guest which one
// it is; slot 0 is the bridge's own.
func shmemDevice(r ivshmem.Region) *libvirtxml.DomainShmem {
	bus, slot := uint(ivshmemBridge), uint(1+r.Index)
	return &libvirtxml.DomainShmem{
		Name:    r.Name,
		Model:   &libvirtxml.DomainShmemModel{Type: "ivshmem-plain"},
		Size:    &libvirtxml.DomainShmemSize{Value: uint(r.Size >> 20), Unit: "M"},
		Address: &libvirtxml.DomainAddress{PCI: &libvirtxml.DomainAddressPCI{Bus: &bus, Slot: &slot}},
	}
}

// firmwareHole is how much address space above the VM's memory q35 sets aside for
// devices by itself, in MiB.
const firmwareHole = 32 << 10

// addSharedMemory makes room for the devices: a bridge behind a port of its own, and
// addresses. Regions are aligned to their size, so twice their sum always has a place
// for them.
func (p Plan) addSharedMemory(d *libvirtxml.Domain) {
	shared := p.Job.Spec.IVShmem
	if shared.Devices == 0 {
		return
	}
	if hole := p.pciHole(); hole != 0 {
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

// pciHole is how much address space devices need above the VM's memory, in MiB; 0 if
// what they have anyway is enough.
func (p Plan) pciHole() int64 {
	if hole := 2 * int64(p.Job.Spec.IVShmem.Devices) * p.Job.Spec.IVShmem.SizeMiB; hole > firmwareHole {
		return hole
	}
	return 0
}

// guestMemory is what the guest agent has to know of the devices.
func (p Plan) guestMemory() guest.IVShmem {
	shared := p.Job.Spec.IVShmem
	return guest.IVShmem{Devices: shared.Devices, Size: shared.SizeMiB << 20}
}

// regionSize is the size of each of the job's regions, in bytes.
func (n *Node) regionSize() int64 { return n.plan.Job.Spec.IVShmem.SizeMiB << 20 }

// wipeRegion clears what is in region k. Nobody may use it at that time.
func (n *Node) wipeRegion(k int) error {
	if k < 0 || k >= len(n.shared.memory) {
		return fmt.Errorf("shared-memory device %d is none of the job's %d", k, len(n.shared.memory))
	}
	if err := n.shared.memory[k].Wipe(context.Background()); err != nil {
		return fmt.Errorf("wipe shared-memory device %d: %w", k, err)
	}
	return nil
}

// removeRegion gives a region back once no VM has it mapped. Its owner can have
// put something else in its place; that is his as any file of his there, and the
// memory is free when the last who had it mapped has ended.
func removeRegion(ctx context.Context, cfg config.Config, j *journal.Journal, name string) error {
	if slices.ContainsFunc(j.Held(), func(r journal.Record) bool { return r.Kind == recordDomain }) {
		return errors.New("a VM that has it mapped has not ended")
	}
	h := j.Header()
	err := ivshmem.Open(cfg.StateDir(h.Node), h.Node).Remove(ctx, heldRegion(j, name), h.UID)
	if errors.Is(err, ivshmem.ErrForeign) {
		slog.Warn("left alone what stands in the place of a region", "job", j.ID(), "error", err)
		return nil
	}
	return err
}

// heldRegion is what the journal says of a region: its file may be among the huge pages.
func heldRegion(j *journal.Journal, name string) ivshmem.Region {
	region := ivshmem.Region{Name: name}
	for _, r := range j.Held() {
		if r.Kind == recordRegion && r.Name == name {
			_ = r.Decode(&region) // a record without it is of ordinary pages
		}
	}
	return region
}

// orphansPatience bounds how long regions without a journal are removed. Anybody can
// make files that look like one.
const orphansPatience = 30 * time.Second

// removeOrphanRegions removes the regions of jobs without a journal, which somebody
// has removed by hand: a launch begins the journal before it makes regions. They
// are listed first, so that none of a job that is just starting is taken for one.
// Those for which the time is too short are left to the next call.
func removeOrphanRegions(ctx context.Context, cfg config.Config, node string) error {
	state := cfg.StateDir(node)
	on := ivshmem.Open(state, node)
	found, failed := on.List()
	within, cancel := context.WithTimeout(ctx, orphansPatience)
	defer cancel()
	for _, f := range found {
		if _, err := os.Stat(journal.Dir(state, f.Job)); err == nil {
			continue
		}
		err := on.Remove(within, f.Region, f.UID)
		switch {
		case err == nil:
		case errors.Is(err, ivshmem.ErrForeign):
			slog.Debug("no region, though it has the name of one", "error", err)
		case within.Err() != nil && ctx.Err() == nil:
			slog.Warn("regions without a journal are left to the next time", "error", err)
			return failed
		default:
			failed = errors.Join(failed, err)
		}
	}
	return failed
}
