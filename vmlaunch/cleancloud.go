package vmlaunch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/openstack"
	"github.com/slurm-v/slurm-v/slurm"
)

// cloudPatience bounds how long [CleanCloud] may take: slurmd kills a HealthCheckProgram after a minute.
const cloudPatience = 40 * time.Second

// CleanCloud removes what jobs that no longer run have left in the cloud, of all nodes: the
// node whose journal has the record may never come back. It calls active, if something is in
// the cloud, to learn which jobs run in the whole cluster.
func CleanCloud(ctx context.Context, cfg config.Config, active func(context.Context) ([]slurm.RunID, error)) (cleaned []journal.ID, err error) {
	if cfg.Backend.Type != config.BackendOpenStack {
		return nil, nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, cloudPatience, fmt.Errorf("clean waits for OpenStack for %v", cloudPatience))
	defer cancel()
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

// CloudHasPassword reports whether the credentials for the site's OpenStack are a user's password.
func CloudHasPassword(cfg config.Config) bool { return openstack.HasPassword(settings(cfg.Backend)) }

// marked is what carries the marks of jobs in the cloud.
type marked interface {
	Jobs(context.Context) ([]string, error)
	Delete(ctx context.Context, job string) error
	DeleteUnheldImages(context.Context) error
}

func cleanJobs(ctx context.Context, there marked, active func(context.Context) ([]slurm.RunID, error)) (cleaned []journal.ID, err error) {
	jobs, err := there.Jobs(ctx) // before Slurm is asked: a job that starts now is not among them
	if err != nil {
		return nil, err
	}
	if len(jobs) > 0 {
		var running []slurm.RunID
		if running, err = active(ctx); err == nil {
			cleaned, err = deleteJobs(ctx, there, endedJobs(jobs, running))
		}
	}
	return cleaned, errors.Join(err, there.DeleteUnheldImages(ctx))
}

// endedJobs returns those that do not run, in whatever run of theirs.
func endedJobs(names []string, running []slurm.RunID) []journal.ID {
	return slices.DeleteFunc(jobsOf(names), func(id journal.ID) bool {
		return slices.ContainsFunc(running, func(r slurm.RunID) bool { return r.Job == id.Job })
	})
}

// jobsOf leaves out names that are not a job's.
func jobsOf(names []string) (jobs []journal.ID) {
	for _, name := range names {
		if id, err := journal.ParseID(name); err == nil {
			jobs = append(jobs, id)
		}
	}
	return jobs
}

// jobsAtOnce bounds how many jobs are deleted from the cloud at once: each asks five services.
const jobsAtOnce = 16

// deleteJobs deletes the jobs side by side: one whose servers nova does not delete takes all of the time.
func deleteJobs(ctx context.Context, there marked, jobs []journal.ID) (deleted []journal.ID, err error) {
	return eachJob(jobs, jobsAtOnce, func(id journal.ID) error { return there.Delete(ctx, id.String()) })
}

// removeEarlier removes what earlier runs and steps of the job left in the cloud: the first node
// of them may have died, and slurmv-agent clean leaves jobs that run alone. Their ports have the
// MAC addresses that this run asks for, and neutron allows each once in a network.
func removeEarlier(ctx context.Context, there marked, job uint32) error {
	names, err := there.Jobs(ctx)
	if err != nil {
		return err
	}
	earlier := slices.DeleteFunc(jobsOf(names), func(id journal.ID) bool { return id.Job != job })
	_, err = deleteJobs(ctx, there, earlier)
	return err
}

// deleteServers removes everything of the job from the cloud.
func (s store) deleteServers(ctx context.Context, job string) error {
	there, err := openstack.Open(ctx, settings(s.backend))
	if err != nil {
		return err
	}
	return there.Delete(ctx, job)
}
