package trash

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// batch is the number of names read at once.
const batch = 256

// maxNested bounds how many nested directories are open that cannot be renamed to the
// top; see [remover.rest].
const maxNested = 16

// A remover removes the content of a directory.
type remover struct {
	ctx    context.Context
	done   int // number of entries removed or renamed so far
	nested int
}

// empty removes the content of top, to which only root can write. It repeats the pass
// over all entries, since each pass may rename directories into top.
func (r *remover) empty(top *os.File) error {
	for {
		before := r.done
		seen, err := r.each(top, func(name string) error { return r.remove(top, name) })
		if seen == 0 || r.done == before || r.ctx.Err() != nil {
			return err
		}
	}
}

// each calls do with every name in dir. It returns the number of names and the last
// error.
func (r *remover) each(dir *os.File, do func(name string) error) (seen int, failed error) {
	if _, err := dir.Seek(0, io.SeekStart); err != nil {
		return 0, err
	}
	for {
		names, err := dir.Readdirnames(batch)
		if errors.Is(err, io.EOF) {
			return seen, failed
		}
		if err != nil {
			return seen, err
		}
		seen += len(names)
		for _, name := range names {
			if r.ctx.Err() != nil {
				return seen, context.Cause(r.ctx)
			}
			if err := do(name); err != nil {
				failed = err
			}
		}
	}
}

// remove removes the entry of top. It moves the content of a full directory to top first.
func (r *remover) remove(top *os.File, name string) error {
	err := r.unlink(top, name)
	if !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	dir, err := take(top, name)
	if err != nil {
		return err
	}
	defer dir.Close()
	_, failed := r.each(dir, func(name string) error { return r.raise(top, dir, name) })
	err = r.unlink(top, name)
	if errors.Is(err, unix.ENOTEMPTY) {
		return cmp.Or(failed, err)
	}
	return err
}

// raise removes the entry of dir, or renames it into top.
func (r *remover) raise(top, dir *os.File, name string) error {
	err := r.unlink(dir, name)
	if !errors.Is(err, unix.ENOTEMPTY) {
		return err
	}
	err = unix.Renameat(int(dir.Fd()), name, int(top.Fd()), rand.Text())
	if errors.Is(err, unix.EXDEV) || errors.Is(err, unix.ENOKEY) {
		return r.rest(dir)
	}
	return r.count("rename", name, err)
}

// rest empties a directory whose entries cannot be renamed to top, such as a subvolume of
// btrfs, or one with encrypted names and no key.
func (r *remover) rest(dir *os.File) error {
	if r.nested >= maxNested {
		return fmt.Errorf("%s: too many subvolumes are nested", dir.Name())
	}
	r.nested++
	defer func() { r.nested-- }()
	return r.empty(dir)
}

// unlink removes a file or an empty directory. For a full directory the error is
// [unix.ENOTEMPTY].
func (r *remover) unlink(dir *os.File, name string) error {
	at := int(dir.Fd())
	err := withoutMounts(fmt.Sprintf("/proc/self/fd/%d/%s", at, name), func() error {
		err := unix.Unlinkat(at, name, 0)
		if errors.Is(err, unix.EISDIR) {
			err = unix.Unlinkat(at, name, unix.AT_REMOVEDIR)
		}
		return err
	})
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return r.count("remove", name, err)
}

func (r *remover) count(op, name string, err error) error {
	if err != nil {
		return &fs.PathError{Op: op, Path: name, Err: err}
	}
	r.done++
	return nil
}

// take opens the directory and makes root its owner. Nobody else can replace an entry of
// top, but a process whose working directory it is may mount something on it.
func take(top *os.File, name string) (*os.File, error) {
	fd, err := unix.Openat2(int(top.Fd()), name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_XDEV,
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	dir := os.NewFile(uintptr(fd), name)
	if err := errors.Join(dir.Chown(0, 0), dir.Chmod(0o700)); err != nil {
		return nil, errors.Join(err, dir.Close())
	}
	return dir, nil
}
