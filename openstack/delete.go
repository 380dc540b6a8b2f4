package openstack

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/internal/concurrently"
)

// Delete removes everything of a job from the cloud, and returns when it is gone. It may be
// called at any time and any number of times.
func (c *Cloud) Delete(ctx context.Context, job string) error {
	m := c.mark(job)
	if err := c.nova.deleteServers(ctx, m); err != nil {
		return explain("delete the servers of job "+job, err)
	}
	return errors.Join(
		explain("delete the ports of job "+job, c.neutron.deletePorts(ctx, m)),
		explain("delete the QoS policies of job "+job, c.neutron.deletePolicies(ctx, m)),
		explain("delete the flavor of job "+job, c.nova.deleteFlavors(ctx, m)),
		explain("delete the image of job "+job, c.glance.deleteImages(ctx, m)))
}

// removeAll lists what a job has of one kind, and removes each, some at once: Slurm gives a job's end two minutes, and a
// job may have hundreds of ports.
func removeAll[T any](ctx context.Context, list func() ([]T, error), remove func(T) error) error {
	var its []T
	err := try(ctx, func() (err error) {
		its, err = list()
		return err
	})
	failed := concurrently.Each(its, requestsAtOnce, func(one T) error {
		return gone(ctx, func() error { return remove(one) })
	})
	return errors.Join(err, errors.Join(failed...))
}

// gone removes something that another process may remove, too.
func gone(ctx context.Context, remove func() error) error {
	return try(ctx, func() error {
		if err := remove(); !isGone(err) {
			return err
		}
		return nil
	})
}

// Jobs returns the ids of the cluster's jobs of which something is in the cloud.
func (c *Cloud) Jobs(ctx context.Context) (jobs []string, err error) {
	var marks []string
	for what, list := range map[string]func(context.Context) ([]string, error){
		"servers": c.nova.markedServers, "ports": c.neutron.markedPorts, "QoS policies": c.neutron.markedPolicies, "flavors": c.nova.markedFlavors, "images": c.glance.markedImages,
	} {
		err := try(ctx, func() error {
			found, err := list(ctx)
			marks = append(marks, found...)
			return err
		})
		if err != nil {
			return nil, explain("list the "+what, err)
		}
	}
	for _, mark := range marks {
		if job, ours := strings.CutPrefix(mark, string(c.mark(""))); ours {
			jobs = append(jobs, job)
		}
	}
	slices.Sort(jobs)
	return slices.Compact(jobs), nil
}
