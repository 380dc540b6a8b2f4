package lease

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A file is the open, locked file of a VF. Every write takes this lock, so that writers
// exclude each other, and a reader that takes it sees no half-written slot.
type file struct {
	*os.File
	contents
}

// The name of a VF's file says whether the VF may be leased, so listing the leases opens
// no files of free VFs. A file is renamed to heldSuffix before a lease is written, and to
// freeSuffix after the lease has ended.
const (
	heldSuffix = ".held"
	freeSuffix = ".free"
	newFile    = "new" // a file that is not finished
)

// openFile opens and locks a file that exists and reads it.
func openFile(path string) (*file, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, err
	}
	if err := flock(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	text, err := readFull(int(f.Fd()), path, make([]byte, fileSize))
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &file{f, parse(text)}, nil
}

// readContents reads a file without locking it.
func readContents(path string, buffer []byte) (contents, error) {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
	if err != nil {
		return contents{}, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	defer unix.Close(fd)
	text, err := readFull(fd, path, buffer)
	return parse(text), err
}

// peek reads a file without the lock. If a slot cannot be read, another process may be
// writing it: peek then reads again under the lock.
func peek(path string, buffer []byte) (contents, error) {
	c, err := readContents(path, buffer)
	if err != nil || c.bad == 0 {
		return c, err
	}
	f, err := openFile(path)
	if err != nil {
		return contents{}, err
	}
	return f.contents, f.Close()
}

// readFull reads a VF's file, which may be shorter than fileSize. Each new lease reads
// all leases; os.File would cost more system calls, so this is pread into a shared
// buffer.
func readFull(fd int, path string, buffer []byte) ([]byte, error) {
	n, err := unix.Pread(fd, buffer[:fileSize], 0)
	if err != nil {
		return nil, &fs.PathError{Op: "read", Path: path, Err: err}
	}
	return buffer[:n], nil
}

// write replaces a slot. A nil record frees the VF.
func (f *file) write(record *Lease) error {
	body, err := json.Marshal(record)
	if err != nil {
		return err
	}
	text, err := encodeSlot(f.number+1, body)
	if err != nil {
		return err
	}
	at := f.replaceable()
	if _, err := f.WriteAt(text, int64(at)*slotSize); err != nil {
		return err
	}
	f.number, f.last, f.record = f.number+1, at, record
	return nil
}

// replaceable returns the slot that a power cut during the next write may spoil: the
// older or the bad one. After a write that freed the VF it is that write's slot: freeing
// is not synced, so only the older slot is sure to be on disk.
func (f *file) replaceable() int {
	if f.record == nil && f.bad == 0 {
		return f.last
	}
	return 1 - f.last
}

// free frees the VF. If a slot is bad, free writes both, which mends it.
func (f *file) free() error {
	err := f.write(nil)
	if f.bad > 0 {
		err = errors.Join(err, f.write(nil))
	}
	return err
}

// create makes the file of a VF that was never leased. The file gets its name only when
// its whole length is on disk, because a shorter file counts as damaged.
func (s *Store) create(path string) error {
	temporary := filepath.Join(filepath.Dir(path), newFile)
	f, err := os.OpenFile(temporary, os.O_RDWR|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	empty := &file{f, parse(nil)}
	err = errors.Join(empty.free(), s.sync(f), f.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(temporary, path); err != nil {
		return err
	}
	return syncDir(filepath.Dir(path))
}

// syncDir puts the names in dir on disk.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// flock waits for the lock of f.
func flock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
