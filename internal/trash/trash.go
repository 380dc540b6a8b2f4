// Package trash removes directory trees that users can write to.
//
// Two steps keep a user from delaying the remover. [Trash.Discard] takes the tree from
// its place by a single rename, however large it is and whatever its owner does
// meanwhile. [Trash.Empty] removes discarded trees until its context ends; the next call
// removes the rest.
//
// Empty makes root the owner of every directory before it looks into it: from then on
// nobody else can make entries there. It renames the non-empty directories in it to the
// top of the trash. So a tree of any depth needs a constant number of descriptors, and no
// recursion. It never opens or changes anything except directories: a file may have other
// names elsewhere.
package trash

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/durable"
)

// A Trash is a directory that only root can enter.
type Trash struct{ dir string }

// In returns the trash of dir, for trees on the same file system. Discard makes its
// directory.
func In(dir string) Trash { return Trash{filepath.Join(dir, "trash")} }

// Discard removes a file, or puts a directory into the trash. The parent of path must
// belong to root. It is not an error if path does not exist.
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
	// Make only the trash itself: users must be able to pass the directories above it.
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

// Empty removes the content of the trash until ctx is done. If another process is doing
// so, it returns at once.
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

// maxMounts bounds the mounts on one file or directory: fusermount allows users a thousand.
const maxMounts = 1000

// withoutMounts calls do. If the kernel says that path is busy, something is mounted
// there: fusermount lets users mount on their own files. It then detaches the mount and
// calls do again.
func withoutMounts(path string, do func() error) error {
	err := do()
	for range maxMounts {
		if !errors.Is(err, unix.EBUSY) || detach(path) != nil {
			break
		}
		err = do()
	}
	return err
}

// RemoveFile removes a file of a user's, whatever the user mounts on it meanwhile. path is absolute.
func RemoveFile(path string) error {
	err := os.Remove(path)
	if !errors.Is(err, unix.EBUSY) {
		return err
	}
	return whereMountsStay(func() error {
		for detach(path) == nil {
		}
		return os.Remove(path)
	})
}

// Uncover detaches all that is mounted on path, before it is opened.
func Uncover(path string) {
	for range maxMounts {
		if detach(path) != nil {
			break
		}
	}
}

func detach(path string) error { return unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW) }

// whereMountsStay calls do in a mount namespace that has the mounts of this moment, and gets no others: users may mount
// faster than root detaches. The kernel removes a file on which something is mounted in another namespace, and detaches that.
func whereMountsStay(do func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		if unix.Gettid() == os.Getpid() { // /proc/self shows the mounts of this thread, so another one has to do it
			defer runtime.UnlockOSThread()
			done <- whereMountsStay(do)
			return
		}
		done <- withOwnMounts(do) // the thread ends with this function, since it stays locked
	}()
	return <-done
}

func withOwnMounts(do func() error) error {
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("keep mounts out of a mount namespace: %w", err)
	}
	return do()
}
