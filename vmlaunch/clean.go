package vmlaunch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/concurrently"
	"github.com/slurm-v/slurm-v/journal"
)

// Clean reclaims everything on node that belongs to jobs which no longer run. If one
// resource cannot be given back, Clean still gives back the others. It calls running once,
// to learn which jobs run. What was in the trash before stays for [EmptyTrash].
func Clean(ctx context.Context, cfg config.Config, node string, running func(context.Context) (map[journal.ID]bool, error)) (cleaned []journal.ID, err error) {
	s := openStore(cfg, node)
	s.novaPatience, s.deletePatience = cleanNovaPatience, cleanNovaPatience
	orphans := errors.Join(s.releaseOrphanVFs(ctx), s.releaseOrphanRegions(ctx), s.releaseOrphanImages(ctx), s.templates.Sweep(ctx))
	cleaned, err = s.reclaimEnded(ctx, running)
	return cleaned, errors.Join(orphans, err)
}

// cleanNovaPatience is how long a clean waits for nova, which has had its time at the end of the job: slurmd kills a
// HealthCheckProgram after a minute, and more is to be done in it.
const cleanNovaPatience = 20 * time.Second

// reclaimEnded reclaims the journals of jobs that do not run. They go side by side: one that takes all the time keeps no other
// from being reclaimed. Those that need nova come last: nova may let them wait until the end.
func (s store) reclaimEnded(ctx context.Context, running func(context.Context) (map[journal.ID]bool, error)) (cleaned []journal.ID, err error) {
	ids, err := journal.List(s.state)
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	live, err := running(ctx)
	if err != nil {
		return nil, err
	}
	var here, inCloud []journal.ID
	for _, id := range ids {
		switch {
		case s.runs(id, live) && !leftBehind(s.state, id):
		case needsNova(s.state, id):
			inCloud = append(inCloud, id)
		default:
			here = append(here, id)
		}
	}
	local, cancel := halfOf(ctx)
	defer cancel()
	cleaned, err = eachJob(here, jobsAtOnce, func(id journal.ID) error { return s.reclaimSoon(local, id) })
	more, failed := eachJob(inCloud, jobsAtOnce, func(id journal.ID) error { return s.reclaimSoon(ctx, id) })
	return append(cleaned, more...), errors.Join(err, failed)
}

// halfOf ends when half of the time has passed that ctx has left, if it ends: jobs that need nova have the rest.
func halfOf(ctx context.Context) (context.Context, context.CancelFunc) {
	end, ends := ctx.Deadline()
	if !ends {
		return context.WithCancel(ctx)
	}
	left := time.Until(end) / 2
	return context.WithTimeoutCause(ctx, left, fmt.Errorf("it is not done after %v", left.Round(time.Second)))
}

// needsNova reports whether the job has something that nova ends.
func needsNova(state string, id journal.ID) bool {
	s, err := journal.Read(state, id)
	return err == nil && slices.ContainsFunc(s.Held, func(r journal.Record) bool {
		return slices.Contains([]string{recordServers, recordInstance, recordAwaited}, r.Kind)
	})
}

// eachJob does something for each job, for so many at once, and returns those for which it is done.
func eachJob(jobs []journal.ID, atOnce int, do func(journal.ID) error) (done []journal.ID, err error) {
	failed := concurrently.Each(jobs, atOnce, do)
	for i, id := range jobs {
		if failed[i] == nil {
			done = append(done, id)
		}
	}
	return done, errors.Join(failed...)
}

// cleanPatience is how long a clean works on one job, as the epilog does.
const cleanPatience = 2 * time.Minute

// reclaimSoon is reclaimJob with an end: the other jobs of a clean wait for it. If the clean has to end, it begins nothing
// more: the journal is for the next one.
func (s store) reclaimSoon(ctx context.Context, id journal.ID) error {
	if ctx.Err() != nil {
		return fmt.Errorf("job %s was not reached: %w", id, context.Cause(ctx))
	}
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
