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
	"sync"
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

// stopPatience is how long an agent that was asked to stop may take before it is killed.
// The agent only has to close its connections.
const stopPatience = 3 * time.Second

// Reclaim gives back everything that the job holds on node: its VMs, network and files. It
// works from the journal alone, and may be called at any time and any number of times; a
// job without a journal holds nothing. A resource that cannot be given back keeps its
// record for the next try.
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

// stopAgent makes the job's agent let go of the journal: it asks the agent to stop, and
// kills it if it does not. It does not disturb another reclaimer that holds the journal.
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

// isAgent reports whether the process is a job's agent. A reclaimer runs the same program
// with another first argument.
func isAgent(pid int) bool {
	return process.Argument(pid, 1) == "launch"
}

// isReclaimer reports whether the process gives back what jobs hold.
func isReclaimer(pid int) bool {
	return slices.Contains([]string{"reclaim", "clean"}, process.Argument(pid, 1))
}

// ErrFiles matches the error of a reclaim that has left nothing but files. Files take space
// but do not harm other jobs.
var ErrFiles = errors.New("only files are left")

// ErrCloud matches the error of a reclaim that could not delete everything of the job in OpenStack.
var ErrCloud = errors.New("something is left in OpenStack")

// reclaim undoes everything in the journal, the last record first, and removes the journal.
// Files that users could write to go to the trash, where they may stay for a while.
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

// undoAll undoes everything in the journal. It returns the errors about files apart from
// all other errors. nova deletes servers meanwhile: it may take all the time that the reclaim has.
func (s store) undoAll(ctx context.Context, j *journal.Journal) (failed, files error) {
	waiting, giveUp := context.WithTimeout(ctx, s.novaPatience)
	defer giveUp()
	var deleting sync.WaitGroup
	var undeleted error
	deleting.Go(func() {
		var first bool
		if first, undeleted = s.deleteRecorded(ctx, j); first {
			giveUp() // nova has done it all, or cannot be asked
		}
	})
	failed = errors.Join(endDomains(ctx, j), endNovas(ctx, waiting, s, j))
	for _, r := range slices.Backward(j.Held()) {
		if r.Kind == recordServers || slices.Contains(vmRecords, r.Kind) {
			continue // the servers are being deleted; a VM could not be ended or may still start
		}
		err := s.giveBack(ctx, j, r)
		if slices.Contains(fileRecords, r.Kind) {
			files = errors.Join(files, err)
		} else {
			failed = errors.Join(failed, err)
		}
	}
	deleting.Wait()
	if undeleted == nil { // nova starts no more of them, but may have done so after the last look
		failed = errors.Join(failed, endNovas(ctx, waiting, s, j))
	}
	return errors.Join(failed, undeleted), files
}

// endNovas ends the VMs of nova's on this node, those that it may have started since, too.
func endNovas(ctx, waiting context.Context, s store, j *journal.Journal) error {
	return errors.Join(seekAwaited(ctx, waiting, s, j), endInstances(ctx, waiting, j))
}

// vmRecords are the kinds of records that stand for a QEMU.
var vmRecords = []string{recordDomain, recordInstance, recordAwaited}

// endDomains kills the VMs of the job that are ours, all at once.
func endDomains(ctx context.Context, j *journal.Journal) error {
	return endVMs(ctx, named(j, recordDomain), func(uuid string) error { return domainEnded(j, uuid) })
}

func endVMs(ctx context.Context, uuids []string, ended func(uuid string) error) error {
	if len(uuids) == 0 {
		return nil
	}
	if err := hypervisor.Kill(ctx, uuids, ended); err != nil {
		return fmt.Errorf("end the VMs: %w", err)
	}
	return nil
}

// deleteRecorded asks nova to delete the servers of all nodes, if this is the job's first node.
func (s store) deleteRecorded(ctx context.Context, j *journal.Journal) (first bool, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.deletePatience, fmt.Errorf("nova has not deleted them after %v", s.deletePatience))
	defer cancel()
	for _, r := range j.Held() {
		if r.Kind == recordServers {
			return true, s.giveBack(ctx, j, r)
		}
	}
	return false, nil
}

// endInstances waits until nova has ended the VMs of this node that it has started, and kills those that are left when
// waiting ends: after a while, or when nova cannot be asked. A QEMU that is killed while nova starts it makes nova wait for
// ever until the server runs, and never delete it. So a reclaim that has less time leaves the VMs to the next one.
func endInstances(ctx, waiting context.Context, j *journal.Journal) error {
	uuids := named(j, recordInstance)
	if err := hypervisor.AwaitEnd(waiting, uuids); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("nova has not ended the VMs yet: %w", err)
		}
		slog.Warn("nova does not end the job's VMs, so they are killed", "job", j.ID(), "error", err)
	}
	return endVMs(ctx, uuids, func(uuid string) error { return j.Undone(recordInstance, uuid) })
}

// named returns the names of the records of a kind.
func named(j *journal.Journal, kind string) (names []string) {
	for _, r := range j.Held() {
		if r.Kind == kind {
			names = append(names, r.Name)
		}
	}
	return names
}

// giveBack is undo whose error says what is left.
func (s store) giveBack(ctx context.Context, j *journal.Journal, r journal.Record) error {
	if err := s.undo(ctx, j, r); err != nil {
		return fmt.Errorf("give back %s %s: %w", r.Kind, r.Name, err)
	}
	return nil
}

// undo gives back one resource. It may be called again after it was interrupted.
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
	recordServers: func(s store, ctx context.Context, _ *journal.Journal, job string) error {
		if err := s.deleteServers(ctx, job); err != nil {
			return fmt.Errorf("%w: %w", ErrCloud, err)
		}
		return nil
	},
	recordRegion: store.removeRegion,
	recordImage: func(s store, _ context.Context, _ *journal.Journal, holder string) error {
		return s.images.Release(holder)
	},
	recordPages: func(store, context.Context, *journal.Journal, string) error {
		return nil // the record itself is the promise
	},
	template.Use: func(store, context.Context, *journal.Journal, string) error {
		return nil // the record itself is the use
	},
	template.Work: func(_ store, _ context.Context, _ *journal.Journal, dir string) error {
		return os.RemoveAll(dir) // all directories of a draft are root's
	},
	recordNetwork: func(_ store, ctx context.Context, j *journal.Journal, _ string) error {
		return vmnet.Delete(ctx, j.ID())
	},
	recordRun: func(s store, _ context.Context, _ *journal.Journal, dir string) error {
		return trash.In(s.run).Discard(dir) // libvirt makes directories there to which the user's QEMU can write
	},
	recordFiles: func(s store, _ context.Context, j *journal.Journal, _ string) error {
		return removeFiles(trash.In(s.state), j.Dir())
	},
}

// fileRecords are the kinds of records that stand for files only.
var fileRecords = []string{recordFiles, recordRun, recordImage, template.Work}

// removeFiles empties the job's directory but for the journal, which is removed last. The
// VMs' directories in it belong to the user, so they go to the trash.
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

// trashPatience bounds how long the end of a job waits for its files to be removed: a
// process of the user could make new files all the time.
const trashPatience = 5 * time.Second

// EmptyTrash removes the files that the node's ended jobs left in the trash, for at most
// the given time. The next call continues with the rest.
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

// trashes returns the trash of each file system on which jobs have files.
func (s store) trashes() []trash.Trash {
	return []trash.Trash{trash.In(s.run), trash.In(s.state)}
}
