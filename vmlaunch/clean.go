package vmlaunch

import (
	"context"
	"errors"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/journal"
)

// cleanPatience bounds how long [Clean] removes files, as trashPatience does for a job's
// end. Nobody waits for Clean, so it is longer.
const cleanPatience = time.Minute

// Clean reclaims everything on node that belongs to jobs which no longer run. If one
// resource cannot be given back, Clean still gives back the others. It calls running once,
// to learn which jobs run.
func Clean(ctx context.Context, cfg config.Config, node string, running func(context.Context) (map[journal.ID]bool, error)) (cleaned []journal.ID, err error) {
	s := openStore(cfg, node)
	orphans := errors.Join(s.releaseOrphanVFs(ctx), s.releaseOrphanRegions(ctx), s.releaseOrphanImages(ctx), s.templates.Sweep(ctx))
	cleaned, err = s.reclaimEnded(ctx, running)
	s.emptyTrash(ctx, cleanPatience)
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
		if live[id] && !leftBehind(s.state, id) {
			continue
		}
		if err := s.reclaimJob(ctx, id); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		cleaned = append(cleaned, id)
	}
	return cleaned, failed
}

// leftBehind reports whether a running job's journal is from before the node's last boot:
// the node went down, and the job went on elsewhere.
func leftBehind(state string, id journal.ID) bool {
	s, err := journal.Read(state, id)
	boot, bootErr := journal.BootID()
	return err == nil && bootErr == nil && s.Header.BootID != boot
}
