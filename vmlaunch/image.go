package vmlaunch

import (
	"context"
	"os"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vmstep"
)

// stageImage looks at the job's image and brings it to where the VMs read it.
func (n *Node) stageImage(ctx context.Context, cfg config.Config) (images.Info, error) {
	image, err := images.Inspect(ctx, cfg, n.plan.Image, n.owner())
	if err != nil {
		return images.Info{}, err
	}
	if mode := n.plan.Job.Spec.ImageMode; mode != config.ImageCache {
		n.imageIs(images.Outcome{How: images.How(mode)})
		return image, nil
	}
	holder := n.plan.Job.ID.String()
	if err := n.journal.Intend(recordImage, holder, nil); err != nil {
		return images.Info{}, err
	}
	staging := images.Staging{
		Cache: images.Cache(cfg, n.plan.Job.Node), Site: cfg.Images,
		Owner: n.owner(), Holder: holder, Say: n.sayImage,
	}
	image, outcome, err := staging.Stage(ctx, n.plan.Image, image)
	if err != nil {
		return images.Info{}, err
	}
	n.imageIs(outcome)
	return image, n.journal.Done(recordImage, holder)
}

// imageIs keeps what staging came to, and tells the user what took time or is not
// as he would expect.
func (n *Node) imageIs(o images.Outcome) {
	n.image.Store(&nodeagent.Image{How: string(o.How), Copied: o.Copied, Waited: o.Waited.Milliseconds(), Note: o.String()})
	n.log.Info("image", "outcome", o)
	if o.How == images.Copied || o.How == images.Waited || o.Why != "" {
		n.sayImage(o.String())
	}
}

func (n *Node) sayImage(what string) {
	n.progress(vmstep.Progress{Note: "image: " + what, Millis: n.clock.now().Milliseconds()})
}

// imageOf returns what the overlay of the VM is made on: the image that all have,
// or a copy of its own.
func (n *Node) imageOf(ctx context.Context, m *machine, image images.Info) (images.Info, error) {
	if n.plan.Job.Spec.ImageMode != config.ImageCopy {
		return image, nil
	}
	return images.CopyTo(ctx, m.plan.Dir, image, n.owner())
}

func releaseImage(cfg config.Config, j *journal.Journal, holder string) error {
	return images.Cache(cfg, j.Header().Node).Release(holder)
}

// cleanImages gives back copies of images that jobs without a journal have, which
// somebody has removed by hand.
func cleanImages(ctx context.Context, cfg config.Config, node string) error {
	return images.Cache(cfg, node).Clean(ctx, func(holder string) bool {
		id, err := journal.ParseID(holder)
		if err != nil {
			return true // no job's
		}
		_, err = os.Stat(journal.Dir(cfg.StateDir(node), id))
		return err == nil
	})
}
