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
	"github.com/slurm-v/slurm-v/internal/process"
	"github.com/slurm-v/slurm-v/internal/trash"
	"github.com/slurm-v/slurm-v/internal/vmnet"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vmlaunch/hypervisor"
)

// stopPatience is how long an agent that was asked to stop may take before it is
// killed. It has nothing to do but close its connections.
const stopPatience = 3 * time.Second

// Reclaim gives back all that the job holds on node: its VMs, network and files.
// It starts from the journal, never from anybody's memory, and may be called at
// any time and any number of times; a job without a journal is clean. What cannot
// be undone keeps its record for the next try.
func Reclaim(ctx context.Context, cfg config.Config, node string, id journal.ID) error {
	return openStore(cfg, node).reclaimJob(ctx, id)
}

func (s store) reclaimJob(ctx context.Context, id journal.ID) error {
	if err := s.reclaimLocked(ctx, id); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("node %s: reclaim job %s: %w", s.node, id, err)
	}
	return nil
}

func (s store) reclaimLocked(ctx context.Context, id journal.ID) error {
	if _, err := os.Stat(journal.Dir(s.state, id)); err != nil {
		return err
	}
	s.stopAgent(ctx, id)
	j, err := journal.OpenWait(ctx, s.state, id)
	if err != nil {
		return err
	}
	return s.reclaim(ctx, j)
}

// stopAgent gets the job's agent to let go of the journal: by asking, and if that
// does not help by killing. A reclaimer that holds the journal is left to finish.
func (s store) stopAgent(ctx context.Context, id journal.ID) {
	ask, cancel := context.WithTimeout(ctx, stopPatience)
	defer cancel()
	client, err := nodeagent.Dial(ask, nodeagent.SocketPath(s.run, id.Job, id.Restart))
	if err == nil {
		_ = client.Stop(ask)
		_ = client.Close()
	}
	j, err := journal.OpenWait(ask, s.state, id)
	if err == nil {
		_ = j.Close()
		return
	}
	var locked *journal.LockedError
	if errors.As(err, &locked) && isAgent(locked.Holder.PID) {
		err := process.Kill(ctx, locked.Holder.PID, locked.Holder.Alive)
		slog.Warn("agent did not stop and was killed", "job", id, "pid", locked.Holder.PID, "error", err)
	}
}

// isAgent reports whether the process launches and looks after VMs, as a
// reclaimer, which has the same program, does not.
func isAgent(pid int) bool {
	return process.Argument(pid, 1) == "launch"
}

// ErrFiles matches the error of a reclaim that has left nothing but files. They take
// room, and harm nobody.
var ErrFiles = errors.New("only files are left")

// reclaim undoes what the journal holds, the last first, and removes it. What was in
// the user's hands is in the trash then, where it may stay for a while.
func (s store) reclaim(ctx context.Context, j *journal.Journal) error {
	header := j.Header()
	if header.Version != 0 {
		s.saveLogs(ctx, header, j.Dir())
	}
	failed, files := s.undoAll(ctx, j)
	if failed == nil && files == nil {
		files = j.Remove()
	} else {
		failed = errors.Join(failed, j.Close())
	}
	if header.Version != 0 {
		s.emptyTrash(ctx, trashPatience)
	}
	if failed == nil && files != nil {
		return fmt.Errorf("%w: %w", ErrFiles, files)
	}
	return errors.Join(failed, files)
}

// undoAll undoes what the journal holds, and tells what it could not: of files, and of
// all else.
func (s store) undoAll(ctx context.Context, j *journal.Journal) (failed, files error) {
	failed = endDomains(ctx, j)
	for _, r := range slices.Backward(j.Held()) {
		if r.Kind == recordDomain {
			continue // could not be ended
		}
		err := s.undo(ctx, j, r)
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
	err := hypervisor.Kill(ctx, uuids, func(uuid string) error { return j.Undone(recordDomain, uuid) })
	if err != nil {
		return fmt.Errorf("end the VMs: %w", err)
	}
	return nil
}

// undo gives back one resource. Everything it does may have been done before.
func (s store) undo(ctx context.Context, j *journal.Journal, r journal.Record) error {
	if err := undoers[r.Kind](s, ctx, j, r.Name); err != nil {
		return err
	}
	return j.Undone(r.Kind, r.Name)
}

var undoers = map[string]func(s store, ctx context.Context, j *journal.Journal, name string) error{
	recordVFs: func(s store, ctx context.Context, j *journal.Journal, _ string) error {
		return s.releaseVFs(ctx, j.ID())
	},
	recordRegion: store.removeRegion,
	recordImage: func(s store, _ context.Context, _ *journal.Journal, holder string) error {
		return s.images.Release(holder)
	},
	template.Use: func(store, context.Context, *journal.Journal, string) error {
		return nil // the record was the use
	},
	template.Work: func(_ store, _ context.Context, _ *journal.Journal, dir string) error {
		return os.RemoveAll(dir) // all directories of a draft are root's
	},
	recordNetwork: func(_ store, ctx context.Context, j *journal.Journal, _ string) error {
		return vmnet.Delete(ctx, j.ID())
	},
	recordRun: func(s store, _ context.Context, _ *journal.Journal, dir string) error {
		return trash.In(s.run).Discard(dir) // libvirt makes directories for QEMU there
	},
	recordFiles: func(s store, _ context.Context, j *journal.Journal, _ string) error {
		return removeFiles(trash.In(s.state), j.Dir())
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
	openStore(cfg, node).emptyTrash(ctx, patience)
}

func (s store) emptyTrash(ctx context.Context, patience time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for _, bin := range s.trashes() {
		if err := bin.Empty(ctx); err != nil {
			slog.Warn("files of ended jobs are left", "error", err)
		}
	}
}

// TrashLeft reports whether EmptyTrash has left something.
func TrashLeft(cfg config.Config, node string) bool {
	return slices.ContainsFunc(openStore(cfg, node).trashes(), trash.Trash.Left)
}

// trashes are on the file systems that jobs have files on.
func (s store) trashes() []trash.Trash {
	return []trash.Trash{trash.In(s.run), trash.In(s.state)}
}
