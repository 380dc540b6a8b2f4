// Package ivshmem makes the memory that the VMs of a job on one node share.
//
// A region is a file in /dev/shm, or a link there to a file of huge pages. QEMU maps it
// as a PCI device (IVShmem) or an NVDIMM of each VM: device k of all VMs of the job on the node is one
// [Region], and no other job's VM has it. [Regions] makes them, finds leftover ones, and
// removes them; a [RegionFile] is an open one. The job's journal lists its regions before
// their files exist.
//
// Every user may write to /dev/shm. So a region has a name that cannot be guessed and
// replaces no existing file. It belongs to root until all of its memory is allocated, and
// later counts as the region only if it is still a plain file of its owner. The owner can
// do with it what they can do in their VMs; other users can do nothing.
//
// All memory of a region is allocated when the region is made, and charged to the job's
// cgroup. A job with too little memory fails then, and not later by the death of a VM.
// The memory is zero at first. [RegionFile.Wipe] zeroes it again, and so does [Regions.Remove].
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
	"github.com/slurm-v/slurm-v/internal/trash"
)

// Dir is the directory of regions: libvirt looks for the memory of a <shmem> only here.
const Dir = "/dev/shm"

// Regions are the regions of one node.
type Regions struct{ dir, node string }

// Open returns the regions of the node whose journals are below state.
func Open(state, node string) Regions { return Regions{Dir, nodeHash(state, node)} }

// A Region describes a region before, while and after it exists. Journals store it.
type Region struct {
	Name  string `json:"name"`           // of the file
	Index int    `json:"index"`          // of the device in every VM
	Size  int64  `json:"size"`           // bytes that VMs share
	Huge  string `json:"huge,omitempty"` // directory of its file of huge pages, even if it has ordinary ones; "" if not asked for
	Page  int64  `json:"page,omitempty"` // bytes of a huge page; 0 if not asked for

	// Header is how many bytes of the file precede these, if it is an NVDIMM; 0 for a PCI device.
	Header int64 `json:"header,omitempty"`
}

// Create makes the region, with memory of NUMA node numa unless that is -1 or has too
// little. If the node has too few huge pages, the region has ordinary ones, and
// [RegionFile.Ordinary] says so. If Create fails, call Remove.
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
	m, err := makeFile(ctx, filepath.Join(rs.dir, r.Name), r, as, numa)
	if err != nil {
		return nil, err
	}
	m.Ordinary = fewPages
	return m, nil
}

// makeFile makes a file of memory. An existing file is an error.
func makeFile(ctx context.Context, path string, r Region, as owner.IDs, numa int) (*RegionFile, error) {
	m, err := newFile(path, r)
	if err != nil {
		return nil, err
	}
	if err := m.prepare(ctx, r, as, numa); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// newFile makes a region's file, without memory yet. An existing file is an error.
func newFile(path string, r Region) (*RegionFile, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := file.Truncate(r.FileSize()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &RegionFile{file: file, header: r.Header, size: r.FileSize()}, nil
}

// prepare gives the file its memory first and its owner last, since the owner could
// meddle with it.
func (f *RegionFile) prepare(ctx context.Context, r Region, as owner.IDs, numa int) error {
	if err := onNode(numa, func() error { return f.allocate(ctx) }); err != nil {
		return err
	}
	if err := f.describe(r); err != nil {
		return err
	}
	return f.giveTo(as)
}

func (f *RegionFile) giveTo(as owner.IDs) error {
	if err := f.file.Chmod(0o600); err != nil { // independent of the umask
		return err
	}
	return f.file.Chown(int(as.UID), int(as.GID))
}

// Reserve makes a region without memory, for a VM that has the device but does not write
// to it. If Reserve fails, call Remove.
func (rs Regions) Reserve(r Region, as owner.IDs) error {
	m, err := newFile(filepath.Join(rs.dir, r.Name), r)
	if err != nil {
		return fmt.Errorf("reserve shared memory: %w", err)
	}
	return errors.Join(m.giveTo(as), m.Close())
}

// step is the number of bytes handled between two checks of the context.
const step = 64 << 20

// allocate allocates all of the memory, which the kernel clears.
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

// retry repeats a call that was interrupted by a signal, such as one of Go's own.
func retry(do func() error) error {
	for {
		if err := do(); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// ErrForeign matches the refusal of a file that is not, or no longer, a region of the
// expected owner.
var ErrForeign = errors.New("not a region of that owner")

// Remove wipes and removes a region, which must belong to uid or have no owner yet.
// Removing a missing region succeeds. QEMU must have ended.
func (rs Regions) Remove(ctx context.Context, r Region, uid uint32) error {
	err := rs.remove(ctx, r, uid)
	if err != nil {
		return fmt.Errorf("remove shared memory %s: %w", filepath.Join(rs.dir, r.Name), err)
	}
	return nil
}

// remove looks for both a file of huge pages and one of ordinary pages: the process that
// made the region may have died before or after it changed to ordinary pages.
func (rs Regions) remove(ctx context.Context, r Region, uid uint32) error {
	if _, ok := parseName(r.Name); !ok {
		return ErrForeign
	}
	path := filepath.Join(rs.dir, r.Name)
	if r.Huge == "" {
		return removeFile(ctx, path, uid, r.FileSize())
	}
	if err := unlink(path, r.hugeFile()); err != nil {
		return err
	}
	ordinary := removeFile(ctx, path, uid, r.FileSize())
	if ordinary != nil && !errors.Is(ordinary, ErrForeign) {
		return ordinary
	}
	return cmp.Or(removeFile(ctx, r.hugeFile(), uid, r.FileSize()), ordinary)
}

// removeFile wipes size bytes of a file and removes it. If size is 0, it wipes as much as
// the file has memory for: its owner can give it any length.
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
	// The owner may have another name for the file, or a process that has it open:
	// truncate it, so that they keep an empty file.
	if err := m.file.Truncate(0); err != nil {
		return err
	}
	return removeName(path)
}

// removeName removes the name of a file, also if its owner mounts something on it again.
func removeName(path string) error {
	err := trash.RemoveFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// errKept matches a file that a process keeps root from opening.
var errKept = errors.New("a process has a lease on it, or runs it as a program")

// removeKept removes the name of a file that cannot be wiped now: the user's process may
// hold its lease for ever. The last process that has the file open frees its memory. If
// the user replaces the file meanwhile, it is their own file that is lost: in a directory
// with the sticky bit they can move no other.
func removeKept(path string, uid uint32) error {
	var info unix.Stat_t
	if err := unix.Lstat(path, &info); err != nil {
		return err
	}
	if !isRegion(info, uid) {
		return ErrForeign
	}
	return removeName(path)
}

// openRegion opens a file that may be a region, of which size bytes count. Its owner
// could have replaced it by anything, even by a hard link to another user's file.
func openRegion(path string, uid uint32, size int64) (*RegionFile, error) {
	file, err := openUncovered(path)
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

// maxCovers bounds how often the owner can mount something on a file between two looks at it.
const maxCovers = 1000

// openUncovered opens the file itself, never what its owner has mounted on it: root would wipe that instead, or wait for the
// owner's FUSE server.
func openUncovered(path string) (*os.File, error) {
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	how := unix.OpenHow{Flags: unix.O_RDWR | unix.O_NOFOLLOW | unix.O_NONBLOCK | unix.O_CLOEXEC, Resolve: unix.RESOLVE_NO_XDEV}
	for range maxCovers {
		var fd int
		err = retry(func() (err error) { fd, err = unix.Openat2(int(dir.Fd()), filepath.Base(path), &how); return err })
		if err == nil {
			return os.NewFile(uintptr(fd), path), nil
		}
		if !errors.Is(err, unix.EXDEV) {
			break
		}
		trash.Uncover(path)
	}
	return nil, &fs.PathError{Op: "open", Path: path, Err: err}
}

// isRegion reports whether a file can be a region that belongs to uid, or one that is
// half made and belongs to root. A file of root with a second name is not a region: if
// the kernel allows it (fs.protected_hardlinks is 0), users can make names for files of
// others.
func isRegion(info unix.Stat_t, uid uint32) bool {
	if info.Mode&unix.S_IFMT != unix.S_IFREG {
		return false
	}
	return info.Uid == 0 && info.Nlink == 1 || info.Uid == uid && uid != 0
}
