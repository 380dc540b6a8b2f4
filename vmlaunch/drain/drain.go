// Package drain takes a node out of use when a job leaves something there that would
// disturb other jobs, and resumes the node once it is clean.
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

// reason is the prefix of the reasons for which Slurm-V drains nodes. Resume touches only
// nodes whose reason begins with it, so nothing here replaces the reason of anybody else: a
// broken node would then go back to work.
const reason = "slurm-v:"

// If drains the node if one of failed, the errors of the job's reclaim, is about more than
// files. Its reason replaces that of [For].
func If(ctx context.Context, c slurm.Client, node string, job uint32, failed []error) error {
	if !must(failed) {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), slurm.Patience)
	defer cancel()
	where := ""
	if slices.ContainsFunc(failed, func(err error) bool { return errors.Is(err, vmlaunch.ErrCloud) }) {
		where = " in OpenStack"
	}
	why := fmt.Sprintf("%s job %d left something%s; see 'slurmv clean --node-name %s'", reason, job, where, node)
	_, err := asAdministrator(c).Drain(ctx, node, why, reason)
	return err
}

// For drains the node for a reason that somebody removes, who then calls [Over]. If the node
// is out of use for another reason, that one stays, even if it is [If]'s, and drained is
// false.
func For(ctx context.Context, c slurm.Client, node, why string) (drained bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), slurm.Patience)
	defer cancel()
	return asAdministrator(c).Drain(ctx, node, reason+" "+why, reason+" "+why)
}

// Over returns the node to service if it is still drained for that reason.
func Over(ctx context.Context, c slurm.Client, node, why string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), slurm.Patience)
	defer cancel()
	return asAdministrator(c).Resume(ctx, node, reason+" "+why)
}

// must reports whether one of the errors is about more than files.
func must(failed []error) bool {
	return slices.ContainsFunc(failed, func(err error) bool { return !errors.Is(err, vmlaunch.ErrFiles) })
}

// Resume returns a clean node to service if Slurm-V drained it.
func Resume(ctx context.Context, c slurm.Client, node string) error {
	ctx, cancel := context.WithTimeout(ctx, slurm.Patience)
	defer cancel()
	return asAdministrator(c).Resume(ctx, node, reason)
}

// asAdministrator runs Slurm's commands with this process's environment: they may need
// SLURM_CONF. The environment is root's here, so it can be trusted.
func asAdministrator(c slurm.Client) slurm.Client {
	c.Env = os.Environ()
	return c
}
