package ledger

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"go.etcd.io/bbolt"
	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/durable"
)

// A Ledger is the ledger in a file. Its methods are for one goroutine at a time. No other
// process has the file open meanwhile.
type Ledger struct {
	path   string
	file   *os.File // of db, which holds the lock
	db     *bbolt.DB
	broken bool // bbolt was interrupted, and keeps locks of its own
}

// Open opens the ledger at path, and makes it if there is none. It waits until no other
// process has it open, or until ctx is done; the error then names that process if the kernel
// knows it. A [*DamagedError] says that the file is no ledger.
//
// The file may be on NFS, for a backup controller: it is read anew whenever it is opened, and
// locks count for all hosts.
//
// A new file is for the process's own user only, who should be the owner of its directory.
func Open(ctx context.Context, path string) (*Ledger, error) {
	l, err := open(ctx, path)
	if errors.Is(err, fs.ErrNotExist) {
		if err = create(path); err == nil {
			l, err = open(ctx, path)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("open the fabric's ledger: %w", err)
	}
	return l, nil
}

// Close lets other processes have the ledger.
func (l *Ledger) Close() error {
	if l.broken {
		return unlock(l.file)
	}
	return l.db.Close()
}

// unlock gives up the lock and closes the file. While a file is mapped into memory, closing
// it keeps the lock.
func unlock(f *os.File) error {
	return errors.Join(unix.Flock(int(f.Fd()), unix.LOCK_UN), f.Close())
}

func open(ctx context.Context, path string) (*Ledger, error) {
	l := &Ledger{path: path}
	err := guard(func() (err error) {
		l.db, err = bbolt.Open(path, 0o600, &bbolt.Options{
			OpenFile: func(string, int, os.FileMode) (*os.File, error) {
				if l.file, err = openLocked(ctx, path); err == nil {
					err = checkPages(l.file)
				}
				return l.file, err
			},
		})
		return foreign(err)
	})
	if err == nil {
		err = guard(func() error { return l.db.View(recognize) })
	}
	if err == nil {
		return l, nil
	}
	return nil, l.abandon(l.judge(err))
}

// abandon closes what open has opened before an error.
func (l *Ledger) abandon(err error) error {
	switch {
	case l.broken && l.file != nil:
		return errors.Join(err, unlock(l.file))
	case l.db != nil:
		return errors.Join(err, l.db.Close())
	}
	return err // bbolt has closed it
}

// foreign makes bbolt's words for a file that is not its own a damage.
func foreign(err error) error {
	for _, is := range []error{berrors.ErrInvalid, berrors.ErrVersionMismatch, berrors.ErrChecksum} {
		if errors.Is(err, is) {
			return damaged(fmt.Errorf("it is not a ledger of Slurm-V: %w", err))
		}
	}
	return err
}

// newSuffix is of files that are not ledgers yet. A process that is killed while it makes one leaves it
// behind, until the first change of the ledger.
const newSuffix = ".*.new"

// create makes an empty ledger at path, whole, unless another process is faster. That one may then
// have removed the file of this one.
func create(path string) error {
	dir := filepath.Dir(path)
	f, err := os.CreateTemp(dir, filepath.Base(path)+newSuffix)
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err := initialize(f); err != nil {
		return err
	}
	if err := os.Link(f.Name(), path); err != nil && !there(path) {
		return err
	}
	return durable.SyncDir(dir)
}

func there(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// removeNew removes what was to become the ledger, which is there.
func removeNew(path string) {
	left, _ := filepath.Glob(path + newSuffix)
	for _, file := range left {
		_ = os.Remove(file)
	}
}

// initialize makes an empty file a ledger, and closes it.
func initialize(f *os.File) error {
	same := func(string, int, os.FileMode) (*os.File, error) { return f, nil }
	db, err := bbolt.Open(f.Name(), 0, &bbolt.Options{OpenFile: same})
	if err != nil {
		return errors.Join(err, f.Close())
	}
	return errors.Join(db.Update(lay), db.Close())
}
