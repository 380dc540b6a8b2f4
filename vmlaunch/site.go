package vmlaunch

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vmstep"
)

// nobody is who runs QEMU when root makes a template: a guest that breaks out is then
// nobody. The group is the image's.
const nobody = 65534

// siteWork is the journal of the making of a template by root; no job has the number.
var siteWork = journal.ID{}

// MakeSiteTemplate makes a template of an image of the catalogue for VMs like those of
// spec, for all users who may read the image, and returns where it is. It needs no job,
// and takes the CPUs and the memory of one VM.
func MakeSiteTemplate(ctx context.Context, cfg config.Config, node string, spec jobspec.Spec, progress func(vmstep.Progress)) (dir string, err error) {
	path, err := images.Resolve(cfg, spec.Image)
	if err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	job := Job{
		ID: siteWork, Node: node, Nodes: 1, UID: nobody, GID: groupOf(info), Spec: spec,
		CPUs: spec.VMsPerNode * spec.VCPUs,
	}
	plan, err := decide(cfg, job)
	if err != nil {
		return "", err
	}
	plan.Site = true
	clock := startStopwatch(job.Requested)
	j, err := openJournal(ctx, cfg, job)
	if err != nil {
		return "", fmt.Errorf("is another template being made? %w", err)
	}
	n := newNode(plan, j, clock, progress)
	err = n.makeSiteTemplate(ctx, cfg)
	n.close()
	if n.from != nil {
		dir = n.from.Dir
	}
	return dir, errors.Join(err, reclaim(context.WithoutCancel(ctx), cfg, j))
}

func (n *Node) makeSiteTemplate(ctx context.Context, cfg config.Config) error {
	if err := errors.Join(n.makeDirs(), n.openLog()); err != nil {
		return err
	}
	image, err := n.prepare(ctx, cfg)
	if err != nil {
		return err
	}
	return n.getTemplate(ctx, cfg, image)
}
