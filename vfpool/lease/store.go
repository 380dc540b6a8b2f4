package lease

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/journal"
)

// A Store is the directory of a node's leases. Several goroutines and several
// processes may use it.
type Store struct {
	dir  string
	boot string
	sync func(*os.File) error // fdatasync
}

// Open returns the store in dir. The first [Store.Lock] makes the directory, for root
// alone: whoever can open its files can lock them for ever.
func Open(dir string) (*Store, error) {
	boot, err := journal.BootID()
	if err != nil {
		return nil, fmt.Errorf("open VF leases: %w", err)
	}
	return &Store{dir: dir, boot: boot, sync: fdatasync}, nil
}

// fdatasync suffices because the file keeps its size. It does not write the modification
// time, which would double the cost.
func fdatasync(f *os.File) error { return unix.Fdatasync(int(f.Fd())) }

// Read returns the leases as [Locked.All] does, but without the lock: a lease that
// changes meanwhile is returned in its old or new state, or is missing.
func (s *Store) Read() ([]Lease, error) {
	swept := s.swept()
	suffixes := []string{heldSuffix}
	if !swept {
		suffixes = append(suffixes, freeSuffix)
	}
	records, err := s.records(swept, suffixes...)
	if err != nil {
		return nil, fmt.Errorf("read VF leases: %w", err)
	}
	return records, nil
}

// records reads the files whose names have one of the suffixes.
func (s *Store) records(swept bool, suffixes ...string) ([]Lease, error) {
	keys, err := s.keys(suffixes...)
	if err != nil {
		return nil, err
	}
	records, buffer := []Lease(nil), make([]byte, fileSize)
	for _, k := range keys {
		c, err := peek(k.path, buffer)
		if errors.Is(err, fs.ErrNotExist) {
			continue // renamed since it was listed
		}
		if err != nil {
			return nil, err
		}
		if r, leased := s.judge(k.key, c, swept); leased {
			records = append(records, r)
		}
	}
	return records, nil
}

type keyFile struct {
	key  Key
	path string
}

// keys lists the files whose names have one of the suffixes, ordered by name.
func (s *Store) keys(suffixes ...string) ([]keyFile, error) {
	dir, err := os.Open(s.dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	names, err := dir.Readdirnames(-1)
	slices.Sort(names)
	var files []keyFile
	for _, name := range names {
		dot := max(strings.LastIndexByte(name, '.'), 0)
		if slices.Contains(suffixes, name[dot:]) {
			files = append(files, keyFile{Key(name[:dot]), s.dir + "/" + name})
		}
	}
	return files, errors.Join(err, dir.Close())
}

func (s *Store) path(key Key, suffix string) string {
	return filepath.Join(s.dir, string(key)+suffix)
}

// judge says what a file with these contents means. Before the first sweep of a boot, one
// bad slot is a write that a power cut interrupted; Put had not returned, so the other
// slot counts. Later a bad slot is damage: a killed process completes the write of its
// page.
func (s *Store) judge(key Key, c contents, swept bool) (r Lease, leased bool) {
	damage := c.err
	if c.bad == 1 && !swept {
		damage = nil
	}
	if c.record != nil {
		r = *c.record
		r.OldBoot = r.BootID != s.boot
		if damage == nil && r.Key() != key {
			damage = fmt.Errorf("it is of VF %s", name(r.VF))
		}
	}
	if damage == nil {
		return r, c.record != nil
	}
	if r.Key() != key {
		vf, err := key.vf()
		if err != nil {
			return Lease{}, false // not a file of this store
		}
		r = Lease{VF: vf, BootID: s.boot}
	}
	r.Quarantine = fmt.Sprintf("its record %s is damaged (%v); see that no VM has the VF, then delete the file",
		s.path(key, heldSuffix), damage)
	return r, true
}

// Update writes another Step, Original or Quarantine to a lease that the caller holds.
// It fails if the lease has ended.
func (s *Store) Update(r Lease) error {
	if err := s.update(r.bounded()); err != nil {
		return fmt.Errorf("lease of VF %s: %w", name(r.VF), err)
	}
	return nil
}

func (s *Store) update(r Lease) error {
	f, err := openFile(s.path(r.Key(), heldSuffix))
	if errors.Is(err, fs.ErrNotExist) {
		return errLost
	}
	if err != nil {
		return err
	}
	return errors.Join(s.replace(f, r), f.Close())
}

func (s *Store) replace(f *file, r Lease) error {
	old, leased := s.judge(r.Key(), f.contents, true)
	switch {
	case !leased || !old.same(r):
		return errLost
	case f.bad > 0:
		return &takenError{Holder: old}
	}
	if err := r.checkAfter(old); err != nil {
		return err
	}
	r.BootID = old.BootID
	return errors.Join(f.write(&r), s.sync(f.File))
}
