// Package drain takes a node out of use on which a job has left what would meet other
// jobs, and gives it back once it is clean.
package drain

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"

	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmlaunch"
)

// reason begins the reasons of the nodes that we have drained, so that we resume those
// and no others.
const reason = "slurm-v:"

// If drains the node if more than files is among what a reclaim of the job could not give
// back.
func If(ctx context.Context, c slurm.Client, node string, job uint32, failed []error) error {
	if !must(failed) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), slurm.Patience)
	defer cancel()
	return asAdministrator(c).Drain(ctx, node, fmt.Sprintf("%s job %d left something; see 'slurmv clean --node-name %s'", reason, job, node))
}

// must reports whether more than files is left.
func must(failed []error) bool {
	return slices.ContainsFunc(failed, func(err error) bool { return !errors.Is(err, vmlaunch.ErrFiles) })
}

// Resume gives back a node that we drained. It is clean now.
func Resume(ctx context.Context, c slurm.Client, node string) error {
	ctx, cancel := context.WithTimeout(ctx, slurm.Patience)
	defer cancel()
	return asAdministrator(c).Resume(ctx, node, reason)
}

// asAdministrator keeps the environment, which is root's here: SLURM_CONF may be needed.
func asAdministrator(c slurm.Client) slurm.Client {
	c.Env = os.Environ()
	return c
}
