package vmlaunch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/journal"
)

// Clean reclaims everything on node that belongs to jobs which no longer run. If one
// resource cannot be given back, Clean still gives back the others. It calls running once,
// to learn which jobs run. What was in the trash before stays for [EmptyTrash].
func Clean(ctx context.Context, cfg config.Config, node string, running func(context.Context) (map[journal.ID]bool, error)) (cleaned []journal.ID, err error) {
	s := openStore(cfg, node)
	orphans := errors.Join(s.releaseOrphanVFs(ctx), s.releaseOrphanRegions(ctx), s.releaseOrphanImages(ctx), s.templates.Sweep(ctx))
	cleaned, err = s.reclaimEnded(ctx, running)
	return cleaned, errors.Join(orphans, err)
}

// reclaimEnded reclaims the journals of jobs that do not run.
func (s store) reclaimEnded(ctx context.Context, running func(context.Context) (map[journal.ID]bool, error)) (cleaned []journal.ID, err error) {
	ids, err := journal.List(s.state)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	live, err := running(ctx)
	if err != nil {
		return nil, err
	}
	var failed error
	for _, id := range ids {
		if s.runs(id, live) && !leftBehind(s.state, id) {
			continue
		}
		if err := s.reclaimSoon(ctx, id); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		cleaned = append(cleaned, id)
	}
	return cleaned, failed
}

// cleanPatience is how long a clean works on one job, as the epilog does.
const cleanPatience = 2 * time.Minute

// reclaimSoon is reclaimJob with an end: the other jobs of a clean wait for it.
func (s store) reclaimSoon(ctx context.Context, id journal.ID) error {
	ctx, cancel := context.WithTimeoutCause(ctx, cleanPatience, fmt.Errorf("it is not done after %v", cleanPatience))
	defer cancel()
	return s.reclaimJob(ctx, id)
}

// runs reports whether the VMs of a journal are those of a job that runs. The restart count
// of a journal can be wrong: Slurm 22.05 takes it from the user's environment. So the
// journal of another run of such a job counts, too, as long as its agent lives. So does the
// making of a template for all users, which is no job of Slurm's.
func (s store) runs(id journal.ID, live map[journal.ID]bool) bool {
	if live[id] || id == siteWork && s.isServed(id) {
		return true
	}
	for other := range live {
		if other.Job == id.Job {
			return s.isServed(id)
		}
	}
	return false
}

// isServed reports whether the agent that made the journal lives.
func (s store) isServed(id journal.ID) bool {
	j, err := journal.Open(s.state, id)
	if err == nil {
		_ = j.Close()
	}
	return errors.Is(err, journal.ErrLocked)
}

// leftBehind reports whether a running job's journal is from before the node's last boot:
// the node went down, and the job went on elsewhere.
func leftBehind(state string, id journal.ID) bool {
	s, err := journal.Read(state, id)
	boot, bootErr := journal.BootID()
	return err == nil && bootErr == nil && s.Header.BootID != boot
}
