// Package shm maps the memory that programs in the VMs of a job share on one node
// (IVShmem). It is for programs in the VMs, and what ivshmem/slurmv_ivshmem.h is
// for C.
//
// A run of slurm-v-run in a job with --ivshmem has a device, which [Open] maps: the
// same memory for all its ranks on the node, and nobody else's. At the start of the
// run it is zero. [Peers] are the ranks that have it.
//
// It is memory and no more. What is in it can change at any time by the hand of
// another VM, so share it by sync/atomic, and never with whom you would not share
// your own memory.
package shm

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// The variables that tell a program what its run has.
const (
	EnvDevice = "SLURMV_IVSHMEM"       // the file to map, such as /dev/slurmv/ivshmem0
	EnvSize   = "SLURMV_IVSHMEM_SIZE"  // how many bytes it has
	EnvPeers  = "SLURMV_IVSHMEM_PEERS" // the ranks that have it, in rising order, such as 0-3,8
)

// devices is where a VM has them.
const devices = "/dev/slurmv"

// ErrNone means that the run has no shared memory.
var ErrNone = errors.New("this run has no shared memory; was the job submitted with --ivshmem?")

// A Memory is shared memory that is mapped.
type Memory struct{ bytes []byte }

// Open maps the memory of this run. The error is [ErrNone] if it has none.
func Open() (*Memory, error) {
	device := os.Getenv(EnvDevice)
	if device == "" {
		return nil, ErrNone
	}
	return OpenDevice(device)
}

// OpenDevice maps a device of the VM by its name, "ivshmem0", or its path.
func OpenDevice(name string) (*Memory, error) {
	path := name
	if !filepath.IsAbs(name) {
		path = filepath.Join(devices, name)
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("shared memory: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return nil, fmt.Errorf("shared memory: %w", err)
	}
	bytes, err := syscall.Mmap(int(file.Fd()), 0, int(info.Size()), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map shared memory %s: %w", path, err)
	}
	return &Memory{bytes}, nil
}

// Bytes returns the memory, good until Close.
func (m *Memory) Bytes() []byte { return m.bytes }

// Close unmaps the memory. What others have of it stays.
func (m *Memory) Close() error {
	bytes := m.bytes
	m.bytes = nil
	return syscall.Munmap(bytes)
}

// Peers returns the ranks of this run that have its memory, the caller's own among
// them, in rising order; none if it has no memory.
func Peers() ([]int, error) { return parseRanks(os.Getenv(EnvPeers)) }

// maxRanks bounds a list of ranks, which a mistake could make endless.
const maxRanks = 1 << 24

// parseRanks reads "0-3,8".
func parseRanks(text string) (ranks []int, err error) {
	if text == "" {
		return nil, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.ParseUint(from, 10, 31)
		last, err2 := strconv.ParseUint(to, 10, 31)
		before := len(ranks) > 0 && first <= uint64(ranks[len(ranks)-1])
		if err1 != nil || err2 != nil || first > last || before || last-first >= uint64(maxRanks-len(ranks)) {
			return nil, fmt.Errorf("%s: %.80q is no rising list of ranks such as 0-3,8", EnvPeers, text)
		}
		for r := first; r <= last; r++ {
			ranks = append(ranks, int(r))
		}
	}
	return ranks, nil
}
