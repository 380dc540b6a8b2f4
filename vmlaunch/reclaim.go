package vmlaunch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/images/template"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/internal/trash"
	"github.com/slurm-v/slurm-v/internal/vmnet"
	"github.com/slurm-v/slurm-v/journal"
)

// stopPatience is how long an agent that was asked to stop may take before it is
// killed. It has nothing to do but close its connections.
const stopPatience = 3 * time.Second

// Reclaim gives back all that the job holds on node: its VMs, network and files.
// It starts from the journal, never from anybody's memory, and may be called at
// any time and any number of times; a job without a journal is clean. What cannot
// be undone keeps its record for the next try.
func Reclaim(ctx context.Context, cfg config.Config, node string, id journal.ID) error {
	if err := reclaimLocked(ctx, cfg, node, id); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("node %s: reclaim job %s: %w", node, id, err)
	}
	return nil
}

func reclaimLocked(ctx context.Context, cfg config.Config, node string, id journal.ID) error {
	state := cfg.StateDir(node)
	if _, err := os.Stat(journal.Dir(state, id)); err != nil {
		return err
	}
	stopAgent(ctx, cfg.RunDir(node), state, id)
	j, err := journal.OpenWait(ctx, state, id)
	if err != nil {
		return err
	}
	return reclaim(ctx, cfg, j)
}

// stopAgent gets the job's agent to let go of the journal: by asking, and if that
// does not help by killing. A reclaimer that holds the journal is left to finish.
func stopAgent(ctx context.Context, run, state string, id journal.ID) {
	ask, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	client, err := nodeagent.Dial(ask, nodeagent.SocketPath(run, id.Job, id.Restart))
	if err == nil {
		_ = client.Stop(ask)
		_ = client.Close()
	}
	j, err := journal.OpenWait(ask, state, id)
	if err == nil {
		_ = j.Close()
		return
	}
	var locked *journal.LockedError
	if errors.As(err, &locked) && isAgent(locked.Holder.PID) {
		err := killProcess(ctx, locked.Holder.PID, locked.Holder.Alive)
		slog.Warn("agent did not stop and was killed", "job", id, "pid", locked.Holder.PID, "error", err)
	}
}

// isAgent reports whether the process launches and looks after VMs, as a
// reclaimer, which has the same program, does not.
func isAgent(pid int) bool {
	return argument(pid, 1) == "launch"
}

// ErrFiles matches the error of a reclaim that has left nothing but files. They take
// room, and harm nobody.
var ErrFiles = errors.New("only files are left")

// reclaim undoes what the journal holds, the last first, and removes it. What was in
// the user's hands is in the trash then, where it may stay for a while.
func reclaim(ctx context.Context, cfg config.Config, j *journal.Journal) error {
	header := j.Header()
	if header.Version != 0 {
		saveLogs(ctx, cfg, header, j.Dir())
	}
	failed, files := undoAll(ctx, cfg, j)
	if failed == nil && files == nil {
		files = j.Remove()
	} else {
		failed = errors.Join(failed, j.Close())
	}
	if header.Version != 0 {
		EmptyTrash(ctx, cfg, header.Node, trashPatience)
	}
	if failed == nil && files != nil {
		return fmt.Errorf("%w: %w", ErrFiles, files)
	}
	return errors.Join(failed, files)
}

// undoAll undoes what the journal holds, and tells what it could not: of files, and of
// all else.
func undoAll(ctx context.Context, cfg config.Config, j *journal.Journal) (failed, files error) {
	failed = endDomains(ctx, j)
	for _, r := range slices.Backward(j.Held()) {
		if r.Kind == recordDomain {
			continue // could not be ended
		}
		err := undo(ctx, cfg, j, r)
		switch {
		case err == nil:
		case slices.Contains(fileRecords, r.Kind):
			files = errors.Join(files, fmt.Errorf("give back %s %s: %w", r.Kind, r.Name, err))
		default:
			failed = errors.Join(failed, fmt.Errorf("give back %s %s: %w", r.Kind, r.Name, err))
		}
	}
	return failed, files
}

// endDomains kills the VMs of the job, which were started last, at once.
func endDomains(ctx context.Context, j *journal.Journal) error {
	var uuids []string
	for _, r := range j.Held() {
		if r.Kind == recordDomain {
			uuids = append(uuids, r.Name)
		}
	}
	if len(uuids) == 0 {
		return nil
	}
	err := killDomains(ctx, uuids, func(uuid string) error { return j.Undone(recordDomain, uuid) })
	if err != nil {
		return fmt.Errorf("end the VMs: %w", err)
	}
	return nil
}

// undo gives back one resource. Everything it does may have been done before.
func undo(ctx context.Context, cfg config.Config, j *journal.Journal, r journal.Record) error {
	if err := undoers[r.Kind](ctx, cfg, j, r.Name); err != nil {
		return err
	}
	return j.Undone(r.Kind, r.Name)
}

var undoers = map[string]func(context.Context, config.Config, *journal.Journal, string) error{
	recordVFs: func(ctx context.Context, cfg config.Config, j *journal.Journal, _ string) error {
		return releaseVFs(ctx, cfg, j)
	},
	recordRegion: removeRegion,
	recordImage: func(_ context.Context, cfg config.Config, j *journal.Journal, holder string) error {
		return releaseImage(cfg, j, holder)
	},
	template.Claim: func(context.Context, config.Config, *journal.Journal, string) error {
		return nil // the record was the claim
	},
	template.Work: func(_ context.Context, _ config.Config, _ *journal.Journal, dir string) error {
		return os.RemoveAll(dir) // all directories of a draft are root's
	},
	recordNetwork: func(ctx context.Context, _ config.Config, j *journal.Journal, _ string) error {
		return vmnet.Delete(ctx, j.ID())
	},
	recordRun: func(_ context.Context, cfg config.Config, j *journal.Journal, dir string) error {
		return trash.In(cfg.RunDir(j.Header().Node)).Discard(dir) // libvirt makes directories for QEMU there
	},
	recordFiles: func(_ context.Context, cfg config.Config, j *journal.Journal, _ string) error {
		return removeFiles(trash.In(cfg.StateDir(j.Header().Node)), j.Dir())
	},
}

// fileRecords are the kinds of what is no more than files.
var fileRecords = []string{recordFiles, recordRun, recordImage, template.Work}

// removeFiles empties the job's directory but for the journal, which goes last. The
// directories of the VMs in it are the user's.
func removeFiles(bin trash.Trash, dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Name() != "journal" {
			err = errors.Join(err, bin.Discard(filepath.Join(dir, e.Name())))
		}
	}
	return err
}

// trashPatience bounds how long the end of a job waits for its files to be removed:
// somebody may be making new ones among them.
const trashPatience = 5 * time.Second

// EmptyTrash removes what users' processes have left of the node's ended jobs, for so
// long at most. What is left is tried again by the next one.
func EmptyTrash(ctx context.Context, cfg config.Config, node string, patience time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, bin := range trashes(cfg, node) {
		if err := bin.Empty(ctx); err != nil {
			slog.Warn("files of ended jobs are left", "error", err)
		}
	}
}

// TrashLeft reports whether EmptyTrash has left something.
func TrashLeft(cfg config.Config, node string) bool {
	return slices.ContainsFunc(trashes(cfg, node), trash.Trash.Left)
}

// trashes are on the file systems that jobs have files on.
func trashes(cfg config.Config, node string) []trash.Trash {
	return []trash.Trash{trash.In(cfg.RunDir(node)), trash.In(cfg.StateDir(node))}
}

// cleanPatience is trashPatience for [Clean], for which nobody waits.
const cleanPatience = time.Minute

// Clean reclaims what jobs that are not running any more have left on node. What it
// cannot give back keeps it from nothing else. running says which jobs run; it is
// asked once.
func Clean(ctx context.Context, cfg config.Config, node string, running func(context.Context) (map[journal.ID]bool, error)) (cleaned []journal.ID, err error) {
	orphans := errors.Join(releaseOrphans(ctx, cfg, node), removeOrphanRegions(ctx, cfg, node),
		cleanImages(ctx, cfg, node), openTemplates(cfg, node).Sweep(ctx))
	cleaned, err = reclaimEnded(ctx, cfg, node, running)
	EmptyTrash(ctx, cfg, node, cleanPatience)
	return cleaned, errors.Join(orphans, err)
}

// reclaimEnded reclaims the journals of jobs that do not run.
func reclaimEnded(ctx context.Context, cfg config.Config, node string, running func(context.Context) (map[journal.ID]bool, error)) (cleaned []journal.ID, err error) {
	ids, err := journal.List(cfg.StateDir(node))
	if err != nil || len(ids) == 0 {
		return nil, err
	}
	live, err := running(ctx)
	if err != nil {
		return nil, err
	}
	var failed error
	for _, id := range ids {
		if live[id] && !leftBehind(cfg.StateDir(node), id) {
			continue
		}
		if err := Reclaim(ctx, cfg, node, id); err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		cleaned = append(cleaned, id)
	}
	return cleaned, failed
}

// leftBehind reports whether a running job's journal is from before this boot:
// the node went down and came back while the job went on elsewhere.
func leftBehind(state string, id journal.ID) bool {
	s, err := journal.Read(state, id)
	boot, bootErr := journal.BootID()
	return err == nil && bootErr == nil && s.Header.BootID != boot
}
