package ivshmem

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/sparse"
)

// A RegionFile is a region that this process has open, whatever becomes of its name.
type RegionFile struct {
	Ordinary error // why it has ordinary pages instead of huge ones; nil if it has the pages asked for

	file   *os.File
	header int64 // bytes before the memory that VMs share
	size   int64 // of the file
}

// Close closes the region, which continues to exist.
func (f *RegionFile) Close() error { return f.file.Close() }

// Wipe overwrites everything that was ever written to with zeros; allocated memory that
// was never touched is a hole of the file. The pages stay, because VMs have them mapped
// and a VF of theirs may have them pinned: after replacing a page, VM and VF would see
// different ones. Wipe ignores what the owner has added behind the region's end, which no
// VM ever saw.
func (f *RegionFile) Wipe(ctx context.Context) error {
	for at := f.header; ; {
		from, to, err := sparse.NextData(f.file, at)
		if to = min(to, f.size); err != nil || from >= to {
			return err
		}
		if err := f.zero(ctx, from, to); err != nil {
			return err
		}
		at = to
	}
}

// zero clears a part of the memory in windows: larger mappings would count as memory of
// this process.
func (f *RegionFile) zero(ctx context.Context, from, to int64) error {
	var has unix.Statfs_t
	if err := retry(func() error { return unix.Fstatfs(int(f.file.Fd()), &has) }); err != nil {
		return &fs.PathError{Op: "statfs", Path: f.file.Name(), Err: err}
	}
	page := has.Bsize
	window := max(step, page)
	for at := from / page * page; at < to; at += window {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := f.zeroWindow(at, min(window, to-at), page); err != nil {
			return err
		}
	}
	return nil
}

// zeroWindow maps the memory, because files of huge pages cannot be written to. With
// MAP_NORESERVE it reserves no pages in place of those that were punched out of the file.
func (f *RegionFile) zeroWindow(at, size, page int64) error {
	memory, err := unix.Mmap(int(f.file.Fd()), at, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return &fs.PathError{Op: "mmap", Path: f.file.Name(), Err: err}
	}
	return errors.Join(clearPages(memory, page), unix.Munmap(memory))
}

// clearPages has the kernel write the zeros. The owner may cut the file off meanwhile:
// the kernel then returns an error for the missing page, while a write by this process
// would kill it. A missing page has no content, so it is skipped.
func clearPages(memory []byte, page int64) error {
	zeros, err := os.Open("/dev/zero")
	if err != nil {
		return err
	}
	defer zeros.Close()
	for len(memory) > 0 {
		n, err := zeros.Read(memory)
		if errors.Is(err, unix.EFAULT) {
			n, err = min(int(page), len(memory)), nil
		}
		if err != nil {
			return err
		}
		memory = memory[n:]
	}
	return nil
}

// onNode calls do, which allocates memory, with NUMA node node preferred. Memory of other
// nodes is slower but works, so a failure to set the policy is no error. The policy is
// set for the thread and ends with it, because files of huge pages, unlike those of
// /dev/shm, have no policy of their own.
func onNode(node int, do func() error) error {
	const preferred, bits = 1, 64
	if node < 0 || node >= bits {
		return do()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		mask := uint64(1) << node
		_, _, _ = unix.Syscall(unix.SYS_SET_MEMPOLICY, preferred, uintptr(unsafe.Pointer(&mask)), bits+1)
		done <- do()
	}()
	return <-done
}
