package cache

import (
	"context"
	"errors"
	"os"
	"time"

	"github.com/slurm-v/slurm-v/internal/durable"
	"github.com/slurm-v/slurm-v/internal/sparse"
)

// partial is the suffix of a copy that is not whole yet.
const partial = ".partial"

var (
	// errFresh matches the refusal of a file that has changed just now: its times might not
	// show the next change.
	errFresh = errors.New("it has changed a moment ago")

	// errChanged matches the refusal of a file that changed while it was copied.
	errChanged = errors.New("it changed while it was copied")
)

// transfer makes the copy. The caller has the lock of e.
func (c *Cache) transfer(ctx context.Context, e entry, src Source, was fileState, progress func(Progress)) (copied int64, err error) {
	if c.fresh(was.Identity) {
		return 0, errFresh
	}
	if err := e.clear(len(src.Below)); err != nil {
		return 0, err
	}
	r := record{Source: src.Path, Owner: src.Owner, Below: len(src.Below), Bytes: was.allocated}
	if err := c.reserve(ctx, e, r); err != nil {
		return 0, err
	}
	report := steadily(func(done int64) { progress(Progress{Done: done, Total: was.allocated}) })
	temporary := e.file(r.Below) + partial
	if copied, err = write(ctx, temporary, src, report); err != nil {
		return 0, errors.Join(err, os.Remove(temporary))
	}
	if is, err := stateOf(src.File); err != nil || is.Identity != was.Identity {
		return 0, errors.Join(errChanged, err, os.Remove(temporary))
	}
	if err := e.publish(src, temporary); err != nil {
		return 0, err
	}
	made, err := stateAt(e.file(r.Below))
	if err != nil {
		return 0, err
	}
	r.Copy = made.Identity
	return copied, e.write(r)
}

// clear removes a killed process's unfinished copy, or a copy that its owner has written
// to. VMs that run on it are not disturbed, because they have it open.
func (e entry) clear(below int) error {
	var all error
	for _, path := range []string{e.recordFile(), e.file(below), e.file(below) + partial} {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			all = errors.Join(all, err)
		}
	}
	return all
}

// publish gives the copy its final name, beside links to the files below it.
func (e entry) publish(src Source, temporary string) error {
	for i, b := range src.Below {
		link := e.file(len(src.Below) - 1 - i)
		if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if err := os.Symlink(b.Path, link); err != nil {
			return err
		}
	}
	if err := os.Rename(temporary, e.file(len(src.Below))); err != nil {
		return err
	}
	return durable.SyncDir(e.dir)
}

// write copies src to path. Once the copy is on disk, it gives it to the owner.
func write(ctx context.Context, path string, src Source, report func(done int64)) (copied int64, err error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return 0, err
	}
	copied, err = sparse.Copy(ctx, file, src.File, report)
	if err == nil && src.Finish != nil {
		err = src.Finish(file)
	}
	if err == nil {
		err = errors.Join(file.Sync(), src.Owner.take(file))
	}
	return copied, errors.Join(err, file.Close())
}

// take makes the copy readable for the owner. Nobody may write to it. An owner could still
// change the mode and write; [record.intact] notices this.
func (w Whose) take(file *os.File) error {
	if w == Everybody {
		return file.Chmod(0o444)
	}
	return errors.Join(file.Chmod(0o400), file.Chown(w.UID, w.GID))
}

// steadily passes on the first report, and then one each reportEvery.
func steadily(report func(int64)) func(int64) {
	var last time.Time
	return func(done int64) {
		if time.Since(last) >= reportEvery {
			last = time.Now()
			report(done)
		}
	}
}
