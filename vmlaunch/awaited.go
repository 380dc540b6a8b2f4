package vmlaunch

import (
	"context"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vmlaunch/hypervisor"
)

// expect writes into the journal which VMs nova may start on this node from now on. If the job ends before they have
// started, reclaim looks for them: nova may have started them since, and the node goes to other jobs.
func (c *cloud) expect() error {
	var each errgroup.Group
	for _, server := range c.servers() {
		each.Go(func() error { return c.journal.Intend(recordAwaited, server, nil) })
	}
	return each.Wait()
}

// seekAwaited looks in nova's libvirtd for the VMs that the job still awaited when it ended. The job's first node looks until
// nova has deleted its servers. Other nodes do not see when that is, and look for a while.
func seekAwaited(ctx, waiting context.Context, s store, j *journal.Journal) error {
	if len(named(j, recordAwaited)) == 0 {
		return nil
	}
	if len(named(j, recordServers)) == 0 {
		var cancel context.CancelFunc
		waiting, cancel = context.WithTimeout(waiting, s.startPatience)
		defer cancel()
	}
	driver, err := hypervisor.Connect(s.backend.Libvirt)
	if err != nil {
		return fmt.Errorf("look for VMs that nova may have started: %w", err)
	}
	defer driver.Close()
	return seek(ctx, waiting, driver.InstanceUUIDs, j)
}

// seekEvery is the pause between two looks for VMs of a job that has ended.
const seekEvery = time.Second

// seek looks for awaited VMs until waiting ends, and once more then. Those that it finds are instances from then on. The
// others are forgotten, unless the next reclaim has time for them, or nova has not deleted the job's servers yet.
func seek(ctx, waiting context.Context, look func(servers ...string) (map[string]string, error), j *journal.Journal) error {
	for {
		last := waiting.Err() != nil
		found, err := look(named(j, recordAwaited)...)
		if err != nil {
			return err
		}
		for server, uuid := range found {
			if err := becomeInstance(j, server, uuid); err != nil {
				return err
			}
		}
		switch left := named(j, recordAwaited); {
		case len(left) == 0:
			return nil
		case last && ctx.Err() != nil:
			return fmt.Errorf("nova may still start VMs: %w", context.Cause(ctx))
		case last && len(named(j, recordServers)) > 0:
			return nil
		case last:
			return forgetAwaited(j, left)
		}
		select {
		case <-waiting.Done():
		case <-time.After(seekEvery):
		}
	}
}

// becomeInstance may be called again after it was interrupted.
func becomeInstance(j *journal.Journal, server, uuid string) error {
	if !slices.Contains(named(j, recordInstance), uuid) {
		if err := j.Intend(recordInstance, uuid, server); err != nil {
			return err
		}
	}
	return j.Undone(recordAwaited, server)
}

func forgetAwaited(j *journal.Journal, servers []string) error {
	for _, server := range servers {
		if err := j.Undone(recordAwaited, server); err != nil {
			return err
		}
	}
	return nil
}
