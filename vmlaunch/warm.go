package vmlaunch

import (
	"context"
	"errors"
	"fmt"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/images/template"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/vmlaunch/hypervisor"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// A warmer restores the VMs of a job from a template, and makes templates.
type warmer struct {
	*VMs
	from *template.Template // from which the VMs are restored; nil if they boot
}

// chooseStart decides whether the VMs boot or are restored from a template. It makes the
// template first if the user or the site wants that.
func (w *warmer) chooseStart(ctx context.Context, image images.Info) error {
	start := w.Plan.Job.Spec.Start
	if start == config.StartCold {
		return nil
	}
	err := w.Clock.During(nodeagent.StageTemplate, func() error { return w.getTemplate(ctx, image) })
	switch {
	case err == nil:
		w.Log.Info("VMs are restored", "template", w.from.Dir)
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case start == config.StartWarm:
		return fmt.Errorf("no VM can be restored (--vm-start=warm): %w", err)
	default:
		w.Log.Info("VMs are booted, not restored", "reason", err)
	}
	return nil
}

// getTemplate finds the template that the VMs are restored from, or makes it.
func (w *warmer) getTemplate(ctx context.Context, image images.Info) error {
	if w.Plan.Cold != "" {
		return errors.New(w.Plan.Cold)
	}
	shape, err := w.shape(ctx, image)
	if err != nil {
		return err
	}
	err = w.findTemplate(ctx, shape)
	if errors.Is(err, template.ErrNone) {
		err = w.newTemplate(ctx, shape, image, err)
	}
	return err
}

// newTemplate gets a template for an owner who has none: a copy of the one for all users
// or, if the owner or the site wants that, a new one. Otherwise it returns the error none.
func (w *warmer) newTemplate(ctx context.Context, shape template.Shape, image images.Info, none error) error {
	if w.Plan.Catalogue && !w.Plan.Site {
		err := w.adoptTemplate(ctx, shape)
		if err == nil {
			return w.findTemplate(ctx, shape)
		}
		if !errors.Is(err, template.ErrNone) {
			return err
		}
		none = telling(none, err)
	}
	if w.Plan.Job.Spec.Start != config.StartWarm && !w.Plan.Warm.Automatic {
		return none
	}
	if err := w.makeTemplate(ctx, shape, image); err != nil {
		return fmt.Errorf("make a template: %w", err)
	}
	return w.findTemplate(ctx, shape)
}

// telling returns the error that says why a template does not fit, if one does: the owner's
// own comes first.
func telling(own, site error) error {
	var none *template.NoneError
	if errors.As(own, &none) && none.Reason == "" {
		return site
	}
	return own
}

// findTemplate finds the template that the VMs are restored from.
func (w *warmer) findTemplate(ctx context.Context, shape template.Shape) error {
	t, err := w.useTemplate(ctx, w.templateOwner(), shape)
	if err == nil {
		w.from = &t
	}
	return err
}

// useTemplate finds a template and writes into the journal that the job uses it.
func (w *warmer) useTemplate(ctx context.Context, whose template.Whose, shape template.Shape) (template.Template, error) {
	return w.store.templates.Find(ctx, whose, shape, func(t template.Template) error {
		return w.journal.Intend(template.Use, t.Dir, nil)
	})
}

// shape is what the job's VMs must have in common with a template.
func (w *warmer) shape(ctx context.Context, image images.Info) (template.Shape, error) {
	files, err := image.Identities(ctx, w.Plan.Owner)
	if err != nil {
		return template.Shape{}, err
	}
	agent, err := images.Identify(guestBinary())
	if err != nil {
		return template.Shape{}, err
	}
	uefi, err := identifyFirmware(w.Plan.UEFI)
	if err != nil {
		return template.Shape{}, err
	}
	s := plannedShape(w.Plan)
	s.Named, s.Image, s.UEFI, s.Guest, s.QEMU = w.Plan.Image, files, uefi, agent, w.versions
	return s, nil
}

// plannedShape is the part of a shape that follows from the plan. All of the plan's VMs lie
// as the first one does, else they have no template. It has no number of cores, because an
// emulated VM's depends on shared memory, which a template has room for, whatever the job has.
func plannedShape(p plan.Plan) template.Shape {
	spec, first := p.Job.Spec, p.VMs[0]
	return template.Shape{
		DiskMiB: spec.DiskMiB, VCPUs: spec.VCPUs, Threads: p.Topology(first).Threads, Dedicated: p.Dedicated(first), Memory: spec.MemoryMiB,
		Machine: p.QEMU.Machine, Accel: p.Hardware.Accel, CPU: hypervisor.CPUModel(p, "/"), Emulator: p.QEMU.Emulator,
		Queues: p.Queues(), Mounts: p.Warm.MountSlots, Devices: p.Warm.DeviceSlots, NVDIMM: p.NVDIMM, Version: config.Version,
	}
}
