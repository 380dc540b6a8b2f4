// Package ivshmem makes the memory that the VMs of a job on one node share.
//
// A region is a file in /dev/shm, or a link there to one of huge pages. QEMU maps it as a PCI device (IVShmem) of each
// VM: device k of all VMs of the job on the node is one [Region], and no other
// job's VM has it. [Regions] makes them, finds what was left of them, and
// removes them; a [RegionFile] is one that is open. Which regions a job has is in its
// journal, before the files exist.
//
// Anybody may write to /dev/shm. So a region has a name that nobody can know
// before, is made only where nothing is, stays root's until all of its memory is
// there, and later counts as the region only if it is still a plain file of its
// owner's. Its owner can do with it what he can do in his VMs, and nobody else
// anything.
//
// All memory of a region is taken when it is made, in the job's cgroup: a job
// that has too little learns it then, and not by the death of a VM. It is zero
// then, is overwritten with zeros by [RegionFile.Wipe], and once more before it goes
// back.
package ivshmem

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/owner"
)

// Dir is where regions are: libvirt looks for the memory of a <shmem> nowhere else.
const Dir = "/dev/shm"

// Regions are the regions of one node.
type Regions struct{ dir, node string }

// Open returns the regions of the node whose journals are below state.
func Open(state, node string) Regions { return Regions{Dir, nodeHash(state, node)} }

// A Region is one, before, while and after it exists. It is what a journal keeps.
type Region struct {
	Name  string `json:"name"`           // of the file
	Index int    `json:"index"`          // of the device that it is in every VM
	Size  int64  `json:"size"`           // bytes
	Huge  string `json:"huge,omitempty"` // where its file of huge pages is, or was to be; "" is none
}

// Create makes the region, of the memory of NUMA node numa if that is not -1 and
// has enough. If the node has too few huge pages it is made of ordinary ones, as
// [RegionFile.Ordinary] tells. If Create fails, call Remove.
func (rs Regions) Create(ctx context.Context, r Region, as owner.IDs, numa int) (*RegionFile, error) {
	m, err := rs.create(ctx, r, as, numa)
	if err != nil {
		return nil, fmt.Errorf("make shared memory: %w", err)
	}
	return m, nil
}

func (rs Regions) create(ctx context.Context, r Region, as owner.IDs, numa int) (*RegionFile, error) {
	var fewPages error
	if r.Huge != "" {
		m, err := rs.createHuge(ctx, r, as, numa)
		if !noPages(err) {
			return m, err
		}
		fewPages = fmt.Errorf("%s has too few free pages for %s", r.Huge, inMiB(r.Size))
		if err := os.Remove(r.hugeFile()); err != nil {
			return nil, err
		}
	}
	m, err := makeFile(ctx, filepath.Join(rs.dir, r.Name), r.Size, as, numa)
	if err != nil {
		return nil, err
	}
	m.Ordinary = fewPages
	return m, nil
}

// makeFile makes a file of memory where nothing is.
func makeFile(ctx context.Context, path string, size int64, as owner.IDs, numa int) (*RegionFile, error) {
	m, err := newFile(path, size)
	if err != nil {
		return nil, err
	}
	if err := m.prepare(ctx, as, numa); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// newFile makes a file of a size, in which there is no memory yet, where nothing is.
func newFile(path string, size int64) (*RegionFile, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := file.Truncate(size); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &RegionFile{file: file, size: size}, nil
}

// prepare gives the file its memory and only then its owner, who could otherwise
// meddle with it.
func (f *RegionFile) prepare(ctx context.Context, as owner.IDs, numa int) error {
	if err := onNode(numa, func() error { return f.allocate(ctx) }); err != nil {
		return err
	}
	return f.giveTo(as)
}

func (f *RegionFile) giveTo(as owner.IDs) error {
	if err := f.file.Chmod(0o600); err != nil { // whatever the umask is
		return err
	}
	return f.file.Chown(int(as.UID), int(as.GID))
}

// Reserve makes a region without memory, for a VM that is to have the device and does not
// write to it. If Reserve fails, call Remove.
func (rs Regions) Reserve(r Region, as owner.IDs) error {
	m, err := newFile(filepath.Join(rs.dir, r.Name), r.Size)
	if err != nil {
		return fmt.Errorf("reserve shared memory: %w", err)
	}
	return errors.Join(m.giveTo(as), m.Close())
}

// step is how much is done between two looks at the context, in bytes.
const step = 64 << 20

// allocate takes all of the memory, which the kernel clears.
func (f *RegionFile) allocate(ctx context.Context) error {
	for at := int64(0); at < f.size; at += step {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		err := retry(func() error { return unix.Fallocate(int(f.file.Fd()), 0, at, min(step, f.size-at)) })
		if errors.Is(err, unix.ENOSPC) {
			return f.noRoom()
		}
		if err != nil {
			return &fs.PathError{Op: "fallocate", Path: f.file.Name(), Err: err}
		}
	}
	return nil
}

func (f *RegionFile) noRoom() error {
	var has unix.Statfs_t
	_ = unix.Fstatfs(int(f.file.Fd()), &has)
	return fmt.Errorf("%w: %s is too small for another %s; it holds %s in all. Ask for less (--ivshmem), or have the administrator mount it larger",
		unix.ENOSPC, filepath.Dir(f.file.Name()), inMiB(f.size), inMiB(int64(has.Blocks)*has.Bsize))
}

func inMiB(bytes int64) config.Size { return config.Size(bytes >> 20) }

// retry does what a signal may interrupt, such as one of Go's own.
func retry(do func() error) error {
	for {
		if err := do(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// ErrForeign matches the refusal of a file that is not, or no longer, a region of
// the owner that it should be of.
var ErrForeign = errors.New("not a region of that owner")

// Remove wipes and removes a region, which must be uid's or have got no owner yet.
// One that is not there is removed. QEMU must be gone.
func (rs Regions) Remove(ctx context.Context, r Region, uid uint32) error {
	err := rs.remove(ctx, r, uid)
	if err != nil {
		return fmt.Errorf("remove shared memory %s: %w", filepath.Join(rs.dir, r.Name), err)
	}
	return nil
}

// remove looks for the region in both places: whoever made it may have died before or
// after it turned to ordinary pages.
func (rs Regions) remove(ctx context.Context, r Region, uid uint32) error {
	if _, ok := parseName(r.Name); !ok {
		return ErrForeign
	}
	path := filepath.Join(rs.dir, r.Name)
	if r.Huge == "" {
		return removeFile(ctx, path, uid, r.Size)
	}
	if err := unlink(path, r.hugeFile()); err != nil {
		return err
	}
	ordinary := removeFile(ctx, path, uid, r.Size)
	if ordinary != nil && !errors.Is(ordinary, ErrForeign) {
		return ordinary
	}
	return cmp.Or(removeFile(ctx, r.hugeFile(), uid, r.Size), ordinary)
}

// removeFile wipes size bytes of a file and removes it; if size is 0, as many as it
// has memory for. Its owner can have made it as large as they like.
func removeFile(ctx context.Context, path string, uid uint32, size int64) error {
	m, err := openRegion(path, uid, size)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.Is(err, errKept):
		return removeKept(path, uid)
	case err != nil:
		return err
	}
	defer m.Close()
	if err := m.Wipe(ctx); err != nil {
		return err
	}
	// A process of the owner's may have the file open, or another name for it:
	// what it holds is then an empty file.
	if err := m.file.Truncate(0); err != nil {
		return err
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// errKept matches a file that a process keeps root from opening.
var errKept = errors.New("a process has a lease on it, or runs it as a program")

// removeKept removes the name of a file that cannot be wiped now: to wait for a user's
// process takes as long as they please. The memory goes with the last who has it open.
// Should they exchange the file meanwhile, it is another one of theirs that goes: in a
// directory with the sticky bit they can move no others.
func removeKept(path string, uid uint32) error {
	var info unix.Stat_t
	if err := unix.Lstat(path, &info); err != nil {
		return err
	}
	if !isRegion(info, uid) {
		return ErrForeign
	}
	return os.Remove(path)
}

// openRegion opens what may be a region, of which size bytes count. Its owner could
// have put anything in its place, even a name of somebody else's file.
func openRegion(path string, uid uint32, size int64) (*RegionFile, error) {
	file, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.ELOOP), errors.Is(err, unix.EISDIR), errors.Is(err, unix.ENXIO):
		return nil, ErrForeign // a link, a directory, a socket
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ETXTBSY):
		return nil, errKept
	case err != nil:
		return nil, err
	}
	var info unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &info); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	if !isRegion(info, uid) {
		return nil, errors.Join(ErrForeign, file.Close())
	}
	return &RegionFile{file: file, size: min(info.Size, cmp.Or(size, info.Blocks*512))}, nil
}

// isRegion reports whether a file can be a region of uid's, or one that is half made
// and still root's. A file of root's with a second name is not: where the kernel lets
// them (fs.protected_hardlinks), users make names for files that are not theirs.
func isRegion(info unix.Stat_t, uid uint32) bool {
	if info.Mode&unix.S_IFMT != unix.S_IFREG {
		return false
	}
	return info.Uid == 0 && info.Nlink == 1 || info.Uid == uid && uid != 0
}
