package vmlaunch

import (
	"context"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/internal/emulator"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmstep"
)

// getImage inspects the job's image, finds the firmware that boots it, and brings it to where
// the VMs read it.
func (v *VMs) getImage(ctx context.Context) (images.Info, emulator.UEFI, error) {
	image, err := images.Inspect(ctx, v.Plan.Images, v.Plan.Image, v.Plan.Owner)
	if err != nil {
		return images.Info{}, emulator.UEFI{}, err
	}
	uefi, err := findFirmware(v.Plan, v.Log, image)
	if err != nil {
		return images.Info{}, emulator.UEFI{}, err
	}
	image, err = v.stageImage(ctx, image)
	return image, uefi, err
}

// stageImage returns the image with the paths of the files that the VMs read.
func (v *VMs) stageImage(ctx context.Context, image images.Info) (images.Info, error) {
	if mode := v.Plan.Job.Spec.ImageMode; mode != config.ImageCache {
		v.imageIs(images.Outcome{How: images.How(mode)})
		return image, nil
	}
	holder := v.Plan.Job.ID.String()
	if err := v.journal.Intend(recordImage, holder, nil); err != nil {
		return images.Info{}, err
	}
	staging := images.Staging{
		Cache: v.store.images, Site: v.Plan.Images,
		Owner: v.Plan.Owner, Holder: holder, Say: v.sayImage,
	}
	image, outcome, err := staging.Stage(ctx, v.Plan.Image, image)
	if err != nil {
		return images.Info{}, err
	}
	v.imageIs(outcome)
	return image, v.journal.Done(recordImage, holder)
}

// imageIs keeps the outcome of staging. It tells the user if staging took time or differs
// from what they asked for.
func (v *VMs) imageIs(o images.Outcome) {
	v.Image.Store(&nodeagent.Image{How: string(o.How), Copied: o.Copied, Waited: o.Waited.Milliseconds(), Note: o.String()})
	v.Log.Info("image", "outcome", o)
	if o.How == images.Copied || o.How == images.Waited || o.Why != "" {
		v.sayImage(o.String())
	}
}

func (v *VMs) sayImage(what string) {
	v.tell("image: " + what)
}

// imageOf returns the image below a VM's overlay: the one that all VMs share, or the VM's
// own copy.
func imageOf(ctx context.Context, p plan.Plan, vm plan.VM, image images.Info) (images.Info, error) {
	if p.Job.Spec.ImageMode != config.ImageCopy {
		return image, nil
	}
	return images.CopyTo(ctx, vm.Dir, image, p.Owner)
}

// releaseOrphanImages gives up the cached copies of jobs that have no journal, because
// somebody removed it by hand.
func (s store) releaseOrphanImages(ctx context.Context) error {
	return s.images.Clean(ctx, func(holder string) bool {
		id, err := journal.ParseID(holder)
		return err != nil || s.hasJournal(id) // err: the holder is not a job
	})
}

// tell shows the user a line.
func (v *VMs) tell(note string) {
	v.Progress(vmstep.Progress{Note: note, Millis: v.Clock.Now().Milliseconds()})
}
