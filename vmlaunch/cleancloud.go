package vmlaunch

import (
	"context"
	"errors"
	"slices"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/openstack"
	"github.com/slurm-v/slurm-v/slurm"
)

// CleanCloud removes what jobs that no longer run have left in the cloud, of all nodes: the
// node whose journal has the record may never come back. It calls active, if something is in
// the cloud, to learn which jobs run in the whole cluster.
func CleanCloud(ctx context.Context, cfg config.Config, active func(context.Context) ([]slurm.RunID, error)) (cleaned []journal.ID, err error) {
	if cfg.Backend.Type != config.BackendOpenStack {
		return nil, nil
	}
	there, err := openstack.Open(ctx, settings(cfg.Backend))
	if err != nil {
		return nil, err
	}
	return cleanJobs(ctx, there, active)
}

// CloudCapacity asks the site's OpenStack what it may give to VMs on a node.
func CloudCapacity(ctx context.Context, cfg config.Config, node string) (openstack.Capacity, error) {
	there, err := openstack.Open(ctx, settings(cfg.Backend))
	if err != nil {
		return openstack.Capacity{}, err
	}
	return there.Capacity(ctx, node)
}

// marked is what carries the marks of jobs in the cloud.
type marked interface {
	Jobs(context.Context) ([]string, error)
	Delete(ctx context.Context, job string) error
}

func cleanJobs(ctx context.Context, there marked, active func(context.Context) ([]slurm.RunID, error)) (cleaned []journal.ID, err error) {
	jobs, err := there.Jobs(ctx) // before Slurm is asked: a job that starts now is not among them
	if err != nil || len(jobs) == 0 {
		return nil, err
	}
	running, err := active(ctx)
	if err != nil {
		return nil, err
	}
	for _, name := range jobs {
		id, bad := journal.ParseID(name)
		if bad != nil || slices.ContainsFunc(running, func(r slurm.RunID) bool { return r.Job == id.Job }) {
			continue
		}
		if failed := there.Delete(ctx, name); failed != nil {
			err = errors.Join(err, failed)
			continue
		}
		cleaned = append(cleaned, id)
	}
	return cleaned, err
}

// deleteServers removes everything of the job from the cloud.
func (s store) deleteServers(ctx context.Context, job string) error {
	there, err := openstack.Open(ctx, settings(s.backend))
	if err != nil {
		return err
	}
	return there.Delete(ctx, job)
}
