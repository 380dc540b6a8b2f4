// Package durable writes files that survive a power cut, and locks that end with
// their process.
//
// [WriteFile] replaces a whole file: after a crash at any instant, the file has its old
// or its new content. [Line] and [ParseLine] give text a checksum, so that a reader
// notices damage. [Lock] and [TryLock] are locks between processes.
//
// The package does not interpret the files.
package durable

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// A Disk writes files. The zero Disk is the real one.
type Disk struct {
	// Sync replaces fsync in tests of power cuts; nil is fsync. It is called with files
	// and with directories.
	Sync func(*os.File) error
}

// temporary is the suffix of a file that is not complete.
const temporary = ".new"

// WriteFile is [Disk.WriteFile] on the real disk.
func WriteFile(path string, text []byte) error { return Disk{}.WriteFile(path, text) }

// WriteFile makes text the whole content of path, which only root can read. It returns
// when both content and name are on disk. If it fails, path may have the old or the new
// content. Callers must ensure that only one process at a time writes a path.
func (d Disk) WriteFile(path string, text []byte) error {
	err := d.create(path+temporary, text)
	if err == nil {
		err = os.Rename(path+temporary, path)
	}
	if err != nil {
		return errors.Join(err, removeIfThere(path+temporary))
	}
	return d.SyncDir(filepath.Dir(path))
}

// create writes a file. It overwrites one that a crash has left.
func (d Disk) create(path string, text []byte) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(text)
	if err == nil {
		err = d.sync(file)
	}
	return errors.Join(err, file.Close())
}

// Remove removes what [WriteFile] has written, and what it leaves if its process is killed. Neither need be there.
func Remove(path string) error {
	return errors.Join(removeIfThere(path+temporary), removeIfThere(path))
}

func removeIfThere(path string) error {
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

func (d Disk) sync(file *os.File) error {
	if d.Sync != nil {
		return d.Sync(file)
	}
	return file.Sync()
}

// SyncDir is [Disk.SyncDir] on the real disk.
func SyncDir(dir string) error { return Disk{}.SyncDir(dir) }

// SyncDir returns when the names in dir are on disk, including changes and removals.
func (d Disk) SyncDir(dir string) error { return d.syncPath(dir) }

// SyncTree returns when the regular files in dir, and then their names, are on disk.
// It does not look into directories below dir.
func SyncTree(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			err = errors.Join(err, Disk{}.syncPath(filepath.Join(dir, e.Name())))
		}
	}
	return errors.Join(err, SyncDir(dir))
}

func (d Disk) syncPath(path string) error {
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	return errors.Join(d.sync(file), file.Close())
}

// MakeDirs makes dir and the missing directories above it, with this mode whatever the
// umask is. When it returns, they are on disk. Existing directories are not changed.
func MakeDirs(dir string, mode fs.FileMode) error {
	if _, err := os.Stat(dir); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	parent := filepath.Dir(dir)
	if err := MakeDirs(parent, mode); err != nil {
		return err
	}
	if err := os.Mkdir(dir, mode); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	if err := os.Chmod(dir, mode); err != nil {
		return err
	}
	return SyncDir(parent)
}
