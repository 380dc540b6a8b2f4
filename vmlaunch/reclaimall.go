package vmlaunch

import (
	"context"
	"errors"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/journal"
)

// stuckAfter is how long a reclaim may go on after its deadline before it counts as stuck.
const stuckAfter = 10 * time.Second

var errStuck = errors.New("it did not end in time: something hangs in the kernel")

// ReclaimAll is [Reclaim] for several jobs. It returns the errors of each. It ends soon after
// ctx, even if a reclaim hangs in the kernel.
func ReclaimAll(ctx context.Context, cfg config.Config, node string, ids []journal.ID) []error {
	return reclaimEach(ctx, stuckAfter, ids, func(id journal.ID) error { return Reclaim(ctx, cfg, node, id) })
}

// reclaimEach reclaims the jobs. It waits for the reclaim at most grace after the end of ctx: a
// reclaim that hangs in the kernel notices no deadline.
func reclaimEach(ctx context.Context, grace time.Duration, ids []journal.ID, reclaim func(journal.ID) error) []error {
	done := make(chan []error, 1)
	go func() {
		var failed []error
		for _, id := range ids {
			if err := reclaim(id); err != nil {
				failed = append(failed, err)
			}
		}
		done <- failed
	}()
	select {
	case failed := <-done:
		return failed
	case <-ctx.Done():
	}
	select {
	case failed := <-done:
		return failed
	case <-time.After(grace):
		return []error{errStuck}
	}
}
