package vmlaunch

import (
	"context"
	"errors"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/images/template"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/ivshmem"
	"github.com/slurm-v/slurm-v/vmlaunch/hypervisor"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// quiet is how long the guest is left alone before it is saved. In this time the guest
// finishes what it does when the session ends; otherwise every restored VM would do it.
const quiet = time.Second

// makeTemplate boots a VM of the shape and saves it. The job's own VMs wait meanwhile.
func (w *warmer) makeTemplate(ctx context.Context, shape template.Shape, image images.Info) error {
	return w.publish(ctx, shape, func(draft *template.Draft) error {
		return w.fillDraft(ctx, draft, image)
	})
}

// adoptTemplate makes a copy, for this user, of the template that root has made for all
// users.
func (w *warmer) adoptTemplate(ctx context.Context, shape template.Shape) error {
	site, err := w.useTemplate(ctx, template.Site, shape)
	if err != nil {
		return err
	}
	return w.publish(ctx, shape, func(draft *template.Draft) error {
		return errors.Join(draft.CopyFrom(ctx, site, int(w.Plan.Owner.UID)), w.makeBlank(ctx, draft))
	})
}

// publish makes a template with fill and publishes it. Other jobs of the same owner that
// want to make a template wait; they may then find the one that they need.
func (w *warmer) publish(ctx context.Context, shape template.Shape, fill func(*template.Draft) error) error {
	draft, err := w.store.templates.Draft(ctx, w.templateOwner(), shape, w.Plan.Job.ID.String(), func(dir string) error {
		return w.journal.Intend(template.Work, dir, nil)
	})
	if err != nil {
		return err
	}
	defer w.endDraft(draft)
	if draft.Exists() {
		return nil
	}
	if err := fill(draft); err != nil {
		return err
	}
	return draft.Publish(ctx)
}

// endDraft closes a draft and takes it off the journal.
func (w *warmer) endDraft(draft *template.Draft) {
	err := draft.Close()
	if err == nil {
		err = w.journal.Undone(template.Work, draft.Dir)
	}
	if err != nil {
		w.Log.Warn("a template's draft is left", "error", err)
	}
}

// templateOwner says whose templates the job makes.
func (w *warmer) templateOwner() template.Whose {
	if w.Plan.Site {
		return template.Site
	}
	return template.Own(w.Plan.Owner.UID)
}

// fillDraft makes the files of a template.
func (w *warmer) fillDraft(ctx context.Context, draft *template.Draft, image images.Info) error {
	m := machine.New(w.Plan.TemplateVM(draft.Template), w.Trace)
	if err := w.prepareDisks(ctx, m, image); err != nil {
		return err
	}
	if err := w.makeBlank(ctx, draft); err != nil {
		return err
	}
	if err := w.runTemplate(ctx, m, draft); err != nil {
		return err
	}
	return draft.TakeMemory(hypervisor.LibvirtMemory, hypervisor.TemplateMemory, int(w.Plan.Owner.UID))
}

// runTemplate boots the VM, saves it and ends it.
func (w *warmer) runTemplate(ctx context.Context, m *machine.Machine, draft *template.Draft) error {
	room, err := w.makeRoom()
	if err != nil {
		return err
	}
	err = w.bootTemplate(ctx, m, draft.Nothing(), room)
	if err == nil {
		err = m.Domain.Save(draft.Saved())
	}
	m.Close()
	return errors.Join(err, w.endDomain(m), w.forgetRoom(room))
}

// makeBlank makes the overlay of which each restored VM gets a copy. It is small, however
// large the disk is.
func (w *warmer) makeBlank(ctx context.Context, draft *template.Draft) error {
	disk, err := images.Inspect(ctx, config.Images{Directories: []string{"/"}}, draft.Disk(), w.Plan.Owner)
	if err != nil {
		return err
	}
	disk.Path = draft.Final().Disk()
	return images.CreateOverlay(ctx, disk, draft.Blank(), 0, owner.Owner{})
}

// makeRoom makes the file of the shared memory that a template boots with. The file is
// sparse and takes no memory. It only reserves addresses: the firmware makes the window of
// the devices' bridge as large as this file. Devices that are plugged into a restored VM
// fit into that window; otherwise each VM's kernel would have to lay out the bridge anew.
//
// The region is nil if VMs have NVDIMMs instead, or no shared memory at all.
func (w *warmer) makeRoom() (*ivshmem.Region, error) {
	if w.Plan.NVDIMM || w.Plan.Hardware.Missing.IVShmem {
		return nil, nil
	}
	on := w.store.regions
	room := on.New(w.Plan.Job.ID, 0, plan.TemplateRoom<<20)
	if err := w.journal.Intend(recordRegion, room.Name, ivshmem.Region{Name: room.Name}); err != nil {
		return nil, err
	}
	return &room, on.Reserve(room, w.Plan.Owner.IDs())
}

// forgetRoom removes makeRoom's file, once the VM has ended.
func (w *warmer) forgetRoom(room *ivshmem.Region) error {
	if room == nil {
		return nil
	}
	if err := w.store.regions.Remove(context.Background(), *room, w.Plan.Owner.UID); err != nil {
		return err
	}
	return w.journal.Undone(recordRegion, room.Name)
}

// bootTemplate boots the VM and makes its guest agent prepare it for being saved.
func (w *warmer) bootTemplate(ctx context.Context, m *machine.Machine, nothing string, room *ivshmem.Region) error {
	defer w.WatchTemplate(m)()
	if err := w.startDomain(m, hypervisor.DescribeTemplate(w.Plan, m.Plan, nothing, room)); err != nil {
		return err
	}
	m.Enter(nodeagent.StageBoot)
	wait, cancel := withPatienceFor(ctx, m, w.Plan.Job.Spec.ReadyTimeout)
	defer cancel()
	err := w.reach(wait, m)
	if err == nil {
		m.Enter(nodeagent.StageSave)
	}
	if err == nil && room != nil {
		err = m.Domain.UnplugRegion(wait, *room)
	}
	if err == nil {
		err = readyToSave(wait, m)
	}
	if err != nil {
		return explainBoot(wait, w.Plan, m, err)
	}
	m.EndSession()
	select {
	case <-time.After(quiet):
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// readyToSave makes the guest agent prepare the VM for being saved. It fails if the VM's
// clock is wrong, because all VMs from the template would have that clock.
func readyToSave(ctx context.Context, m *machine.Machine) error {
	if err := m.CheckClock(ctx); err != nil {
		return err
	}
	return m.Session().Template(ctx)
}
