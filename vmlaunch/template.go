package vmlaunch

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"libvirt.org/go/libvirt"
	"libvirt.org/go/libvirtxml"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/images/template"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/ivshmem"
	"github.com/slurm-v/slurm-v/jobspec"
)

// templateMAC is what a template's NIC has: no VM of a job has it, and the bridge drops
// what comes from it.
const templateMAC = "02:73:76:2d:74:6d"

// quiet is how long the guest is left alone before it is saved: what it does about the
// end of the session, it does once and not in every VM.
const quiet = time.Second

// unplugPatience is how long a guest may take to let go of a device.
const unplugPatience = 30 * time.Second

// The memory of a VM as libvirt calls it, and as it is called where it is mapped from a
// template.
const (
	libvirtMemory  = "pc.ram"
	templateMemory = "template.ram"
)

// makeTemplate boots a VM of the shape beside those of the job, which wait for it, and
// saves it.
func (n *Node) makeTemplate(ctx context.Context, cfg config.Config, shape template.Shape, image images.Info) error {
	return n.publish(ctx, shape, func(draft *template.Draft) error {
		return n.fillDraft(ctx, cfg, draft, image)
	})
}

// adoptTemplate makes the user a copy of the template that root has made for all.
func (n *Node) adoptTemplate(ctx context.Context, shape template.Shape) error {
	site, err := n.claimTemplate(ctx, template.Site, shape)
	if err != nil {
		return err
	}
	return n.publish(ctx, shape, func(draft *template.Draft) error {
		return errors.Join(draft.CopyFrom(site, int(n.plan.Owner.UID)), n.makeBlank(ctx, draft))
	})
}

// publish keeps what fill makes. Others of the job's owner who want to make a template
// wait; the first may have made what the next one needs.
func (n *Node) publish(ctx context.Context, shape template.Shape, fill func(*template.Draft) error) error {
	draft, err := n.templates.Draft(ctx, n.templateOwner(), shape, n.plan.Job.ID.String(), func(dir string) error {
		return n.journal.Intend(template.Work, dir, nil)
	})
	if err != nil {
		return err
	}
	defer n.endDraft(draft)
	if draft.Exists() {
		return nil
	}
	if err := fill(draft); err != nil {
		return err
	}
	return draft.Publish(ctx)
}

// endDraft forgets a draft, of which nothing is left.
func (n *Node) endDraft(draft *template.Draft) {
	err := draft.Close()
	if err == nil {
		err = n.journal.Undone(template.Work, draft.Dir)
	}
	if err != nil {
		n.log.Warn("a template's draft is left", "error", err)
	}
}

// templateOwner is whose templates the job makes.
func (n *Node) templateOwner() template.Whose {
	if n.plan.Site {
		return template.Site
	}
	return template.Own(n.plan.Owner.UID)
}

// fillDraft makes the files of a template.
func (n *Node) fillDraft(ctx context.Context, cfg config.Config, draft *template.Draft, image images.Info) error {
	m := &machine{plan: n.plan.templateVM(draft.Template), node: n}
	if err := n.prepareDisks(ctx, m, image); err != nil {
		return err
	}
	if err := n.makeBlank(ctx, draft); err != nil {
		return err
	}
	if err := n.runTemplate(ctx, cfg, m, draft); err != nil {
		return err
	}
	return draft.TakeMemory(libvirtMemory, templateMemory, int(n.plan.Owner.UID))
}

// runTemplate boots the VM and saves it, of which nothing else is left.
func (n *Node) runTemplate(ctx context.Context, cfg config.Config, m *machine, draft *template.Draft) error {
	room, err := n.makeRoom(cfg)
	if err != nil {
		return err
	}
	err = n.bootTemplate(ctx, m, n.plan.templateDomain(m.plan, cfg.Warm, draft.Nothing(), room))
	if err == nil {
		err = n.saveTemplate(m, draft.Saved())
	}
	m.close()
	return errors.Join(err, n.endDomain(m), n.forgetRoom(cfg, room))
}

// makeBlank makes the overlay that each VM gets a copy of. It is small, whatever size the
// disk has.
func (n *Node) makeBlank(ctx context.Context, draft *template.Draft) error {
	disk, err := images.Inspect(ctx, config.Config{Images: config.Images{Directories: []string{"/"}}}, draft.Disk(), n.owner())
	if err != nil {
		return err
	}
	disk.Path = draft.Final().Disk()
	return images.CreateOverlay(ctx, disk, draft.Blank(), 0, owner.Owner{})
}

// templateRoom is how much shared memory a template boots with, in MiB: all that a VM can have
// which is restored from it. See [Plan.pciHole].
const templateRoom = firmwareHole / 2

// makeRoom makes the file of the shared memory that a template boots with, which takes no
// memory. It is there for the addresses: the firmware makes the bridge before it as large as
// that, and the devices of VMs that are restored find their place behind it, for which the
// kernel of each would have to lay out the bridge anew.
func (n *Node) makeRoom(cfg config.Config) (ivshmem.Region, error) {
	on := n.regionsHere(cfg)
	room := on.New(n.plan.Job.ID, 0, templateRoom<<20)
	if err := n.journal.Intend(recordRegion, room.Name, ivshmem.Region{Name: room.Name}); err != nil {
		return ivshmem.Region{}, err
	}
	return room, on.Reserve(room, n.regionOwner())
}

// forgetRoom removes that file once the VM has ended.
func (n *Node) forgetRoom(cfg config.Config, room ivshmem.Region) error {
	if err := n.regionsHere(cfg).Remove(context.Background(), room, n.plan.Owner.UID); err != nil {
		return err
	}
	return n.journal.Undone(recordRegion, room.Name)
}

// clearRoom unplugs that memory, and returns when the guest has let go of it.
func (n *Node) clearRoom(ctx context.Context, m *machine, room libvirtxml.DomainShmem) error {
	if err := m.unplug(&room); err != nil {
		return fmt.Errorf("unplug the shared memory of domain %s: %w", m.plan.Domain, err)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, unplugPatience, errors.New("its guest keeps the shared memory that is unplugged"))
	defer cancel()
	for {
		d, err := m.definition()
		if err != nil || len(d.Devices.Shmems) == 0 {
			return err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// bootTemplate boots the VM and has its agent make it ready to be saved.
func (n *Node) bootTemplate(ctx context.Context, m *machine, d *libvirtxml.Domain) error {
	if err := n.startDomain(m, d); err != nil {
		return err
	}
	m.enter("boot")
	wait, cancel := withPatience(ctx, n.plan.Job.Spec.ReadyTimeout)
	defer cancel()
	err := n.reach(wait, m)
	if err == nil {
		m.enter("save")
		err = n.clearRoom(wait, m, d.Devices.Shmems[0])
	}
	if err == nil {
		err = n.readyToSave(wait, m)
	}
	if err != nil {
		return n.explainBoot(wait, m, err)
	}
	m.endSession()
	select {
	case <-time.After(quiet):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// readyToSave has the guest agent make the VM ready to be saved, unless its clock is wrong:
// all VMs from the template will have that clock.
func (n *Node) readyToSave(ctx context.Context, m *machine) error {
	m.meter = m.session.NewMeter()
	if err := n.checkClock(ctx, m); err != nil {
		return err
	}
	return m.session.Template(ctx)
}

// saveTemplate saves the VM, which ends it.
func (n *Node) saveTemplate(m *machine, path string) error {
	if err := m.domain.SaveFlags(path, "", libvirt.DOMAIN_SAVE_RUNNING); err != nil {
		return fmt.Errorf("save domain %s: %w", m.plan.Domain, plain(err))
	}
	return nil
}

// templateVM is the VM that becomes the template t. No other of the job runs yet, so it
// borrows the tap of the first.
func (p Plan) templateVM(t template.Template) VMPlan {
	return VMPlan{
		Number: p.VMs[0].Number, Name: "template", Domain: "slurmv-" + p.Job.ID.String() + "-template",
		UUID: p.uuid(-1), MAC: templateMAC, Tap: p.VMs[0].Tap,
		Dir: t.Dir, Overlay: t.Disk(), Seed: t.Seed(),
		Console: filepath.Join(p.ports(), "template.console"),
		Channel: filepath.Join(p.ports(), "template.channel"),
	}
}

// quietNICs are NICs as restored guests should have them. They do not announce the one that
// is there, which has no address yet. Nor have they a link state: from one that is plugged
// in, Linux first learns that the link is down, then that it is up, and it takes a link's
// changes at most once a second.
var quietNICs = []string{"-global", "virtio-net-device.guest_announce=off", "-global", "virtio-net-device.status=off"}

// commandLine is what libvirt has no words for.
func (p Plan) commandLine() *libvirtxml.DomainQEMUCommandline {
	args := slices.Clone(quietNICs)
	if p.Hardware.Accel == config.AccelTCG {
		args = append(args, inlineQueues...)
	}
	return &libvirtxml.DomainQEMUCommandline{Args: arguments(args...), Envs: oneArena}
}

// inlineQueues has the thread that emulates a processor look after a queue itself when the
// guest rings for it. It would wake another one for that, which then waits for the same lock.
var inlineQueues = []string{"-global", "virtio-pci.ioeventfd=off"}

// oneArena has QEMU's threads share what they allocate from. Those of their own, the C
// library makes larger and smaller by a page at a time.
var oneArena = []libvirtxml.DomainQEMUCommandlineEnv{{Name: "MALLOC_ARENA_MAX", Value: "1"}}

// templateDomain describes the VM: what cannot be plugged into a running one is there, as
// much as the site's slots say, and room for what can.
func (p Plan) templateDomain(vm VMPlan, slots config.Warm, nothing string, room ivshmem.Region) *libvirtxml.Domain {
	p.Job.Spec.Mounts = nil
	for range slots.MountSlots {
		p.Job.Spec.Mounts = append(p.Job.Spec.Mounts, jobspec.Mount{Host: nothing})
	}
	p.Job.Spec.IVShmem = jobspec.IVShmem{Devices: 1, SizeMiB: 1} // for the bridge that they are plugged into
	d := p.domain(vm, nil)
	d.GenID = &libvirtxml.DomainGenID{Value: newUUID()}
	d.QEMUCommandline = p.commandLine()
	d.Devices.Shmems = []libvirtxml.DomainShmem{*shmemDevice(room)}
	placeOnRoot(d)
	for i := range slots.DeviceSlots {
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
