// Package tags ends a job's tags on the fabric on one of its nodes, after its VMs.
//
// Slurm waits for the end of a job, and a card may take minutes to let a service go. So
// [Job.End] tries for seconds, drains the node if services are left, and leaves the rest to
// [Job.Linger], a process in the background, after which the node goes back to work.
// [Clean] does the same for jobs that ended without it. Package fabric/node does the work;
// this one joins it with what is known of the VMs and with the drain of the node.
package tags

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric/cxi"
	"github.com/slurm-v/slurm-v/fabric/node"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmlaunch"
	"github.com/slurm-v/slurm-v/vmlaunch/drain"
)

// lingerPatience bounds how long the tags of an ended job are removed in the background.
const lingerPatience = 5 * time.Minute

// A Job is an ended job on this node.
type Job struct {
	Config config.Config
	Client slurm.Client // its commands run as root
	Node   string       // the node's name in Slurm
	Number uint32
}

// End ends the job's tags, in Slurm's last try. If services are left, it drains the node:
// they hold resources of the cards. If anything is left, later starts the process that
// calls Linger; reason is that of the drain, or "". With reserved, the controller waits for
// this node's confirmation.
func (j Job) End(ctx context.Context, reserved bool, later func(reason string) error) error {
	err := j.open().End(ctx, j.Number, reserved, leftOn(j.Config, j.Node))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, node.ErrUndecided): // which is nothing that an administrator has to know
		return later("")
	}
	reason, drainErr := j.drain(ctx, err)
	return errors.Join(err, drainErr, later(reason))
}

// drain drains the node if services are left, and returns the reason; "" if the node is not
// drained, or for another reason, which is not for us to end.
func (j Job) drain(ctx context.Context, left error) (reason string, err error) {
	if !errors.Is(left, node.ErrServices) {
		return "", nil
	}
	why := reasonOf(left, j.Number)
	if drained, err := drain.For(ctx, j.Client, j.Node, why); err != nil || !drained {
		return "", err
	}
	return why, nil
}

// Linger goes on where End gave up. After it, the node goes back to work if it is still
// drained for the reason. If the node was drained for another job's services, and these go first, this job
// drains it again.
func (j Job) Linger(ctx context.Context, reason string) error {
	err := j.open().Linger(ctx, j.Number, lingerPatience, leftOn(j.Config, j.Node), j.drainOnce(ctx, &reason))
	switch {
	case err == nil && reason != "":
		return drain.Over(ctx, j.Client, j.Node, reason)
	case err == nil:
		return nil
	}
	// Somebody may have made the node resume meanwhile.
	_, drainErr := j.drain(ctx, err)
	return errors.Join(err, drainErr)
}

// drainOnce returns what drains the node for what is left, until it has: whoever makes it resume then has decided
// so.
func (j Job) drainOnce(ctx context.Context, reason *string) func(left error) {
	return func(left error) {
		if *reason == "" {
			*reason, _ = j.drain(ctx, left) // after an error, the next try drains it, or the end of Linger
		}
	}
}

func (j Job) open() *node.Node { return node.Open(j.Config, j.Node, j.Client) }

// Clean removes what ended jobs left of their tags on the node, and returns a phrase for each thing. VFs
// come first: what follows confirms that tags are gone. The client's commands run as root.
func Clean(ctx context.Context, cfg config.Config, name string, client slurm.Client, how node.Cleaning, running node.Running) ([]string, error) {
	vfs, vfsErr := clearVFs(ctx, cfg, name, how.DryRun)
	done, err := node.Open(cfg, name, client).Clean(ctx, how, running, leftOn(cfg, name))
	return append(vfs, done...), errors.Join(vfsErr, err)
}

// leftOn says what of a job's VMs is on the node.
func leftOn(cfg config.Config, name string) node.Left {
	return func(id journal.ID) error { return vmlaunch.Left(cfg, name, id.Job) }
}

func reasonOf(err error, job uint32) string {
	var busy *cxi.BusyError
	if errors.As(err, &busy) {
		return busy.Error()
	}
	return fmt.Sprintf("job %d's CXI services could not be removed", job)
}
