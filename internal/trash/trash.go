// Package trash removes directory trees that users can write to.
//
// Two steps keep a user from holding up the one who removes. [Trash.Discard] takes
// the tree from its place by a single rename, however large it is and whatever its
// owner does meanwhile. [Trash.Empty] removes what was discarded, as long as its
// context allows; what it leaves waits in the trash for the next one.
//
// Empty takes every directory from its owner before it looks into it: from then on
// nobody else can make entries there. It renames directories that are not empty up
// into the trash itself. So a tree of any depth needs a constant number of
// descriptors, and no recursion. It never opens, nor changes, anything but a
// directory: a file may have other names elsewhere.
package trash

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/durable"
)

// A Trash is a directory of root's that nobody else can enter.
type Trash struct{ dir string }

// In returns the trash of dir, for trees on the same file system. It is made when
// something is discarded.
func In(dir string) Trash { return Trash{filepath.Join(dir, "trash")} }

// Discard removes a file, or puts a directory into the trash. The directory that it
// lies in must be root's. Nothing there is no error.
func (t Trash) Discard(path string) error {
	if err := t.discard(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("put %s into %s: %w", path, t.dir, err)
	}
	return nil
}

func (t Trash) discard(path string) error {
	err := unix.Unlink(path)
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// What is above the trash is not the trash's to make: others have to pass through it.
	if err := os.Mkdir(t.dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return withoutMounts(path, func() error { return os.Rename(path, filepath.Join(t.dir, rand.Text())) })
}

// Left reports whether something is in the trash.
func (t Trash) Left() bool {
	dir, err := os.Open(t.dir)
	if err != nil {
		return false
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(1)
	return len(names) > 0
}

// Empty removes what is in the trash until ctx is done. While another process does,
// there is nothing to do.
func (t Trash) Empty(ctx context.Context) error {
	lock, err := durable.TryLock(t.dir, 0)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, durable.ErrLocked) {
		return nil
	}
	if err == nil {
		err = errors.Join(t.empty(ctx), lock.Close())
	}
	if err != nil {
		return fmt.Errorf("empty %s: %w", t.dir, err)
	}
	return nil
}

func (t Trash) empty(ctx context.Context) error {
	dir, err := os.Open(t.dir)
	if err != nil {
		return err
	}
	defer dir.Close()
	return (&remover{ctx: ctx}).empty(dir)
}

// maxMounts bounds the mounts on one directory: fusermount allows users a thousand.
const maxMounts = 1000

// withoutMounts does something with path again after what is mounted on it, which
// the kernel calls busy, is detached. fusermount lets users mount on what is theirs.
func withoutMounts(path string, do func() error) error {
	err := do()
	for range maxMounts {
		if !errors.Is(err, unix.EBUSY) || unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) != nil {
			break
		}
		err = do()
	}
	return err
}
