// Package cache keeps copies of image files on a node's own disk.
//
// An entry is a copy of one file as it was at one moment; its [Key] is made of the
// file's path, inode, size and times of change, and of the keys of the files that
// it is based on. A file that changes gets another key and so another entry; the
// old one stays as long as VMs run on it, and until its room is wanted.
//
// Any number of processes may use a [Cache] at once. [Cache.Get] writes down who
// holds the entry before it looks for it, and an entry that somebody holds is never
// removed. A lock on the entry lets one of them copy, and the others wait for it;
// the kernel gives the lock to the next if that one dies. A copy counts when it is
// on disk under its final name and the entry's record says that it is whole.
//
// Who may read a source is not this package's business: it takes open files.
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

// A Cache is a directory of a node's own disk. It is made with the first entry.
type Cache struct {
	dir   string
	limit int64 // bytes; 0 is half of the file system

	// granule is how exact the times of any file system are that images lie on:
	// two changes within it may leave the same times.
	granule time.Duration

	look time.Duration // how long somebody who waits goes without looking how far a copy is
	most int           // entries
}

// Open returns the cache in dir, which holds at most limit bytes of copies; 0 is
// half of its file system.
func Open(dir string, limit int64) *Cache {
	return &Cache{dir: dir, limit: limit, granule: 2 * time.Second, look: reportEvery, most: maxEntries}
}

// A Source is a file to be copied.
type Source struct {
	File   *os.File
	Path   string // of the file, without symbolic links
	Owner  Whose
	Below  []Copy               // what the file is based on, nearest first
	Finish func(*os.File) error // changes the copy before it counts; may be nil
}

// Whose is whom a copy belongs to. Copies of [Everybody] are root's and
// readable by all; those of a user can be read by nobody else.
type Whose struct{ UID, GID int }

// Everybody is whose copies are that all users share.
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
	Made   bool          // by this call
	Copied int64         // bytes of data that this call has copied
	Waited time.Duration // for another process that was copying
}

// Name is that of a copy in the directory of its entry: how many files are below
// it. There the file next below it, N-1, can be found as well, and all others, so
// that a copy can name what it is based on in one digit.
func Name(below int) string { return strconv.FormatInt(int64(below), 16) }

// A Progress is how far the copying of a file has got, by this process or, if it
// waits, by another.
type Progress struct {
	Done, Total int64 // bytes
	Waiting     bool
}

// Get returns the copy of src, made now if there is none, and holds it in the name
// of holder until [Cache.Release]. progress may be nil; it is called now and then,
// and at the start of a copy and of a wait. Without the room for a copy the error
// is [ErrNoRoom]; if another process copies and gets no further, [ErrStalled].
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

// fill waits until nobody copies into e, and copies if nobody has.
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

// hold writes down that holder has e. Under the cache's lock nobody removes e
// meanwhile, and afterwards nobody will.
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

// Release gives back all entries that holder has. The copies stay. It may be
// called any number of times.
func (c *Cache) Release(holder string) error {
	entries, err := c.entries()
	for _, e := range entries {
		err = errors.Join(err, e.release(holder))
	}
	return err
}

// lock is held for moments: while an entry begins to be held, while room is made,
// and while entries are removed. Who has it may be suspended even then.
func (c *Cache) lock(ctx context.Context) (*durable.Held, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, stalledLooks*c.look, ErrStalled)
	defer cancel()
	return durable.Lock(ctx, filepath.Join(c.dir, lockName), os.O_CREATE)
}

const lockName = "lock"

// makeDir makes a directory that may be there, whatever the umask is. Owners pass
// through the cache's directories to their copies, and see nothing else.
func makeDir(dir string) error {
	if err := os.MkdirAll(dir, 0o711); err != nil {
		return err
	}
	return os.Chmod(dir, 0o711)
}
