package ivshmem

import (
	"context"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/sparse"
)

// A Memory is a region that this process has open, whatever becomes of its name.
type Memory struct {
	file *os.File
	size int64
}

// Close lets go of the region, which stays.
func (m *Memory) Close() error { return m.file.Close() }

// Wipe overwrites with zeros what was ever written to: memory that was allocated and
// never touched is a hole of the file. The memory itself stays:
// VMs have it mapped, and a VF of theirs has it pinned, so that a page which is
// exchanged for a fresh one would be two different ones from then on.
func (m *Memory) Wipe(ctx context.Context) error {
	for at := int64(0); ; {
		from, to, err := sparse.NextData(m.file, at)
		if err != nil || from == to {
			return err
		}
		if err := m.zero(ctx, from, to); err != nil {
			return err
		}
		at = to
	}
}

var zeros = make([]byte, 1<<20)

func (m *Memory) zero(ctx context.Context, from, to int64) error {
	for from < to {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n, err := m.file.WriteAt(zeros[:min(int64(len(zeros)), to-from)], from)
		if err != nil {
			return err
		}
		from += int64(n)
	}
	return nil
}

// preferNode has the kernel take the memory of a NUMA node, while that has any.
// The policy belongs to the file and outlives the mapping. Memory elsewhere is
// slower and as good, so that this cannot be done is no error.
func (m *Memory) preferNode(node int) {
	const preferred, bits = 1, 64
	if node < 0 || node >= bits {
		return
	}
	memory, err := unix.Mmap(int(m.file.Fd()), 0, int(m.size), unix.PROT_NONE, unix.MAP_SHARED)
	if err != nil {
		return
	}
	mask := uint64(1) << node
	_, _, _ = unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(&memory[0])), uintptr(len(memory)),
		preferred, uintptr(unsafe.Pointer(&mask)), bits+1, 0)
	_ = unix.Munmap(memory)
}
