// Package cache keeps copies of image files on a node's own disk.
//
// An entry is a copy of one file as it was at one moment. Its [Key] is made of the file's
// path, inode, size and times of change, and of the keys of the files that it is based on.
// If the file changes, it gets another key and so another entry. The old entry stays as
// long as VMs run on it, and until its room is needed.
//
// Any number of processes may use a [Cache] at once. [Cache.Get] writes down the holder of
// an entry before it looks for the entry, and an entry with a holder is never removed. A
// lock on the entry lets one process copy while the others wait. If the one dies, the
// kernel gives the lock to the next. A copy is valid once it is on disk under its final
// name and the entry's record says that it is whole.
//
// This package does not check who may read a source: it takes open files.
package cache

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/slurm-v/slurm-v/internal/durable"
)

// A Cache is a directory on a node's own disk. The first entry makes it.
type Cache struct {
	dir   string
	limit int64 // bytes; 0 is half of the file system

	// Granule is the coarsest resolution of times on any file system with images: two
	// changes within it may leave the same times.
	Granule time.Duration

	look time.Duration // pause between two looks at the progress of another process's copy
	most int           // bound on the number of entries
}

// Open returns the cache in dir, which holds at most limit bytes of copies. A limit of 0
// means half of its file system.
func Open(dir string, limit int64) *Cache {
	return &Cache{dir: dir, limit: limit, Granule: 2 * time.Second, look: reportEvery, most: maxEntries}
}

// A Source is a file to be copied.
type Source struct {
	File   *os.File
	Path   string // of the file, without symbolic links
	Owner  Whose
	Below  []Copy               // what the file is based on, nearest first
	Finish func(*os.File) error // changes the copy before it becomes valid; may be nil
}

// Whose says to whom a copy belongs. Copies of [Everybody] belong to root, and all users
// can read them. Only the owner can read another copy.
type Whose struct{ UID, GID int }

// Everybody is the owner of copies that all users share.
var Everybody = Whose{-1, -1}

func (w Whose) String() string {
	if w == Everybody {
		return "everybody"
	}
	return strconv.Itoa(w.UID)
}

// A Copy is an entry of the cache that the caller holds.
type Copy struct {
	Key    Key
	Path   string        // of the copy
	Made   bool          // whether this call has made it
	Copied int64         // bytes of data that this call has copied
	Waited time.Duration // how long the call waited for another process that was copying
}

// Name is the file name of a copy in the directory of its entry: the number of files below
// it. The directory has the file just below under the name N-1, and all other files below
// too. So a copy can name its backing file with one digit.
func Name(below int) string { return strconv.FormatInt(int64(below), 16) }

// A Progress says how much of a file is copied, by this process or, if Waiting, by another.
type Progress struct {
	Done, Total int64 // bytes
	Waiting     bool
}

// Get returns the copy of src and holds it for holder until [Cache.Release]. It makes the
// copy if there is none. It calls progress, which may be nil, at the start of a copy and of
// a wait, and then from time to time. It fails if there is no room for a copy, and if
// another process copies but makes no progress.
func (c *Cache) Get(ctx context.Context, src Source, holder string, progress func(Progress)) (Copy, error) {
	got, err := c.get(ctx, src, holder, progress)
	if err != nil {
		return Copy{}, fmt.Errorf("copy %s to %s: %w", src.Path, c.dir, err)
	}
	return got, nil
}

func (c *Cache) get(ctx context.Context, src Source, holder string, progress func(Progress)) (Copy, error) {
	if progress == nil {
		progress = func(Progress) {}
	}
	was, err := stateOf(src.File)
	if err != nil {
		return Copy{}, err
	}
	e := c.entry(src.key(was.Identity))
	if err := c.hold(ctx, e, holder); err != nil {
		return Copy{}, err
	}
	got, err := c.fill(ctx, e, src, was, progress)
	if err != nil {
		_ = os.Remove(e.heldBy(holder))
		_ = c.drop(context.WithoutCancel(ctx), e)
	}
	return got, err
}

// fill waits until no process copies into e. It then makes the copy, unless a whole one is
// there.
func (c *Cache) fill(ctx context.Context, e entry, src Source, was fileState, progress func(Progress)) (Copy, error) {
	lock, waited, err := e.lock(ctx, c.look, progress)
	if err != nil {
		return Copy{}, err
	}
	defer lock.Close()
	got := Copy{Key: e.key, Path: e.file(len(src.Below)), Waited: waited}
	if r, err := e.record(); err == nil && r.intact(e) {
		return got, e.touch()
	}
	got.Made = true
	got.Copied, err = c.transfer(ctx, e, src, was, progress)
	return got, err
}

// hold writes down that holder has e. It takes the cache's lock, so nobody removes e at the
// same time. Afterwards the holder protects e.
func (c *Cache) hold(ctx context.Context, e entry, holder string) error {
	if err := makeDir(c.dir); err != nil {
		return err
	}
	lock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Close()
	if err := c.admit(e); err != nil {
		return err
	}
	if err := errors.Join(makeDir(e.dir), makeDir(e.holders())); err != nil {
		return err
	}
	return os.WriteFile(e.heldBy(holder), nil, 0o600)
}

// Release gives back all entries of holder. The copies stay. It may be called any number of
// times.
func (c *Cache) Release(holder string) error {
	entries, err := c.entries()
	for _, e := range entries {
		err = errors.Join(err, e.release(holder))
	}
	return err
}

// lock locks the whole cache. The lock is held only for moments: while a holder is added,
// while room is made, and while entries are removed. A process may be suspended even then,
// so the wait is bounded.
func (c *Cache) lock(ctx context.Context) (*durable.Held, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, stalledLooks*c.look, errStalled)
	defer cancel()
	return durable.Lock(ctx, filepath.Join(c.dir, lockName), os.O_CREATE)
}

const lockName = "lock"

// makeDir makes a directory with mode 0711, whatever the umask is; it may exist. Owners can
// pass through the cache's directories to their copies, but cannot list them.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return err
	}
	return os.Chmod(dir, 0o711)
}
