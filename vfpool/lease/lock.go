package lease

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
)

// lockFile is the store's lock. It contains the ID of the boot in which the store was
// last swept.
const lockFile = "lock"

// A Locked is a Store whose leases no other process can begin or end.
type Locked struct {
	*Store
	file *os.File
}

// Lock waits for the store's lock until ctx is done.
func (s *Store) Lock(ctx context.Context) (*Locked, error) {
	l, err := s.lock(ctx)
	if err != nil {
		return nil, fmt.Errorf("lock VF leases: %w", err)
	}
	if err := l.sweep(); err != nil {
		l.Unlock()
		return nil, fmt.Errorf("sweep VF leases after boot: %w", err)
	}
	return l, nil
}

func (s *Store) lock(ctx context.Context) (*Locked, error) {
	path := filepath.Join(s.dir, lockFile)
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeDir(s.dir); err != nil {
			return nil, err
		}
		f, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	}
	if err != nil {
		return nil, err
	}
	if err := wait(ctx, f); err != nil {
		return nil, err
	}
	return &Locked{s, f}, nil
}

// makeDir makes dir. Its parents can be searched by every user, because QEMU runs as the
// job's owner and may have files there.
func makeDir(dir string) error {
	parent := filepath.Dir(dir)
	if err := os.MkdirAll(parent, 0o711); err != nil {
		return err
	}
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return syncDir(parent)
}

// wait locks f, or closes it. A pending flock cannot be cancelled: if ctx ends first, the
// goroutine releases the lock as soon as it gets it.
func wait(ctx context.Context, f *os.File) error {
	err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return nil
	}
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return errors.Join(err, f.Close())
	}
	locked := make(chan error)
	go func() {
		err := flock(f)
		select {
		case locked <- err:
		case <-ctx.Done():
			f.Close()
		}
	}()
	select {
	case err := <-locked:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w; another process is changing them, `lslocks` shows which one has %s", context.Cause(ctx), f.Name())
	}
}

// Unlock lets others change the store.
func (l *Locked) Unlock() { l.file.Close() }

// swept reports whether the store was swept in this boot.
func (s *Store) swept() bool {
	boot, err := os.ReadFile(filepath.Join(s.dir, lockFile))
	return err == nil && string(boot) == s.boot
}

// sweep corrects the names of the files once after each boot. Leasing does not sync the
// rename: running processes see it anyway, and only a power cut can bring back a name
// that calls a lease free. sweep also mends half-written slots.
func (l *Locked) sweep() error {
	if l.swept() {
		return nil
	}
	files, err := l.keys(freeSuffix, heldSuffix)
	if err != nil {
		return err
	}
	for _, k := range files {
		if err := l.mend(k); err != nil {
			return err
		}
	}
	if err := l.file.Truncate(0); err != nil {
		return err
	}
	_, err = l.file.WriteAt([]byte(l.boot), 0)
	return err
}

func (l *Locked) mend(k keyFile) error {
	f, err := openFile(k.path)
	if err != nil {
		return err
	}
	defer f.Close()
	if f.bad == 1 {
		if err := errors.Join(f.write(f.record), l.sync(f.File)); err != nil {
			return err
		}
	}
	if f.record == nil && f.bad < 2 {
		return nil
	}
	return os.Rename(k.path, l.path(k.key, heldSuffix))
}

// All returns the leases, ordered by key. They include those of jobs that have ended,
// those of earlier boots, and VFs in quarantine. Of a VF in quarantine, only Kind and
// PCI, or PF and Index, may be known.
func (l *Locked) All() ([]Lease, error) {
	records, err := l.records(true, heldSuffix)
	if err != nil {
		return nil, fmt.Errorf("read VF leases: %w", err)
	}
	return records, nil
}

// Put leases r.VF to r.Job and returns the record with the fields that identify the
// lease. An empty Phase becomes Leased. If Put returns without error, the lease is on
// disk. If the VF is leased already, the error is a [*TakenError].
func (l *Locked) Put(r Lease) (Lease, error) {
	if r.Phase == "" {
		r.Phase = Leased
	}
	put, err := l.put(r.bounded())
	if err != nil {
		return Lease{}, fmt.Errorf("lease VF %s: %w", name(r.VF), err)
	}
	return put, nil
}

func (l *Locked) put(r Lease) (Lease, error) {
	if _, err := r.Key().vf(); err != nil {
		return Lease{}, err
	}
	if !slices.Contains(phases, r.Phase) {
		return Lease{}, fmt.Errorf("unknown step %q", r.Phase)
	}
	f, err := l.openHeld(r.Key())
	if err != nil {
		return Lease{}, err
	}
	defer f.Close()
	if old, leased := l.judge(r.Key(), f.contents, true); leased {
		return Lease{}, &takenError{Holder: old}
	}
	r.BootID, r.OldBoot, r.Epoch = l.boot, false, f.number+1
	if err := f.write(&r); err != nil {
		return Lease{}, err
	}
	if err := l.sync(f.File); err != nil {
		f.record = nil // this slot is not on disk, so free it and keep the other one
		return Lease{}, errors.Join(err, f.write(nil))
	}
	return r, nil
}

// openHeld opens the file of a VF and makes sure that its name ends in heldSuffix. It
// makes the file if the VF was never leased.
func (l *Locked) openHeld(key Key) (*file, error) {
	held, free := l.path(key, heldSuffix), l.path(key, freeSuffix)
	f, err := openFile(held)
	if !errors.Is(err, fs.ErrNotExist) {
		return f, err
	}
	err = os.Rename(free, held)
	if errors.Is(err, fs.ErrNotExist) {
		err = l.create(held)
	}
	if err != nil {
		return nil, err
	}
	return openFile(held)
}

// Delete ends a lease. If that lease has ended already, Delete changes nothing, even if
// another job has the VF by now. A power cut can bring the lease back.
func (l *Locked) Delete(r Lease) error {
	if err := l.delete(r); err != nil {
		return fmt.Errorf("release VF %s: %w", name(r.VF), err)
	}
	return nil
}

func (l *Locked) delete(r Lease) error {
	held := l.path(r.Key(), heldSuffix)
	f, err := openFile(held)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	old, leased := l.judge(r.Key(), f.contents, true)
	if !leased || !old.same(r) {
		return nil
	}
	if err := f.free(); err != nil {
		return err
	}
	return os.Rename(held, l.path(r.Key(), freeSuffix))
}
