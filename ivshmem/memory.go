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
	Ordinary error // why it has ordinary pages though it was to have huge ones; nil if not so

	file *os.File
	size int64
}

// Close lets go of the region, which stays.
func (f *RegionFile) Close() error { return f.file.Close() }

// Wipe overwrites with zeros what was ever written to: memory that was allocated and
// never touched is a hole of the file. The memory itself stays:
// VMs have it mapped, and a VF of theirs has it pinned, so that a page which is
// exchanged for a fresh one would be two different ones from then on. What its owner
// has added behind the region's end, which can be without one, was never a VM's.
func (f *RegionFile) Wipe(ctx context.Context) error {
	for at := int64(0); ; {
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

// zero clears a part of the memory, window by window: more of it mapped would count
// as this process's own.
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

// zeroWindow maps the memory, as files of huge pages cannot be written to in another
// way. It does not reserve pages that somebody has punched out of the file.
func (f *RegionFile) zeroWindow(at, size, page int64) error {
	memory, err := unix.Mmap(int(f.file.Fd()), at, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_NORESERVE)
	if err != nil {
		return &fs.PathError{Op: "mmap", Path: f.file.Name(), Err: err}
	}
	return errors.Join(clearPages(memory, page), unix.Munmap(memory))
}

// clearPages has the kernel write the zeros. A page that the file's owner has cut off
// meanwhile is an error to the kernel, and would be the death of a process that writes
// there itself; nothing is in it.
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

// onNode does something that takes memory, which the kernel gives it from a NUMA node
// while that has any. Memory elsewhere is slower and as good, so that this cannot be
// done is no error. Files of huge pages have no policy of their own, as those of
// /dev/shm could: it is the thread's, and ends with it.
func onNode(node int, do func() error) error {
	const preferred, bits = 1, 64
	if node < 0 || node >= bits {
		return do()
	}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		mask := uint64(1) << node
		_, _, _ = unix.Syscall(unix.SYS_SET_MEMPOLICY, preferred, uintptr(unsafe.Pointer(&mask)), bits+1)
		done <- do()
	}()
	return <-done
}
