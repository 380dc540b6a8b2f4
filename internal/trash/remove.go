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

// batch is how many names are read at once.
const batch = 256

// maxNested bounds how many directories are open whose own directories cannot be
// renamed up, see [remover.rest].
const maxNested = 16

// A remover removes what is in a directory.
type remover struct {
	ctx    context.Context
	done   int // what was removed or renamed so far
	nested int
}

// empty removes what is in top, which only root can write to. It passes over all
// entries again and again, as each pass may rename directories into top.
func (r *remover) empty(top *os.File) error {
	for {
		before := r.done
		seen, err := r.each(top, func(name string) error { return r.remove(top, name) })
		if seen == 0 || r.done == before || r.ctx.Err() != nil {
			return err
		}
	}
}

// each calls do with every name in dir, and returns how many there were and the last
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

// remove removes the entry of top, or takes it apart.
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

// rest empties a directory of which something cannot be renamed out: the content of a
// subvolume of btrfs, or encrypted names without their key.
func (r *remover) rest(dir *os.File) error {
	if r.nested >= maxNested {
		return fmt.Errorf("%s: too many subvolumes are nested", dir.Name())
	}
	r.nested++
	defer func() { r.nested-- }()
	return r.empty(dir)
}

// unlink removes a file, or a directory without entries; else the error is
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

// take opens the directory and takes it from its owner. In top nobody can put
// something else in its place, but whoever stands in the directory may mount there.
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
