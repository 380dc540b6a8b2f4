// Package shm maps the memory that programs in the VMs of a job share on one node
// (IVShmem). It is the counterpart in Go of ivshmem/slurmv_ivshmem.h.
//
// A run of slurm-v-run in a job with --ivshmem has a device, which [Open] maps: it is the
// same memory for all ranks of the run on the node, and for no others. At the start of
// the run it is zero. [Peers] are the ranks that have it.
//
// It is plain memory. Another VM can change its content at any time, so synchronise by
// sync/atomic.
package shm

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// The variables that describe a run's memory to a program.
const (
	EnvDevice = "SLURMV_IVSHMEM"       // the file to map, such as /dev/slurmv/ivshmem0
	EnvSize   = "SLURMV_IVSHMEM_SIZE"  // how many bytes a program may map; MPI may have the rest
	EnvPeers  = "SLURMV_IVSHMEM_PEERS" // the ranks that have it, in rising order, such as 0-3,8
)

// devices is the directory of the devices in a VM.
const devices = "/dev/slurmv"

// ErrNone means that the run has no shared memory.
var ErrNone = errors.New("this run has no shared memory; was the job submitted with --ivshmem?")

// A Memory is shared memory that is mapped.
type Memory struct{ bytes []byte }

// Open maps the memory of this run. The error is [ErrNone] if the run has none.
func Open() (*Memory, error) {
	device := os.Getenv(EnvDevice)
	if device == "" {
		return nil, ErrNone
	}
	most, err := strconv.Atoi(os.Getenv(EnvSize))
	if err != nil {
		most = math.MaxInt
	}
	return open(device, most)
}

// OpenDevice maps a device of the VM by its name, "ivshmem0", or its path.
func OpenDevice(name string) (*Memory, error) {
	if !filepath.IsAbs(name) {
		name = filepath.Join(devices, name)
	}
	return open(name, math.MaxInt)
}

// open maps at most so many bytes. A character device may have a little more than the job has asked for.
func open(path string, most int) (*Memory, error) {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("shared memory: %w", err)
	}
	defer file.Close()
	size, err := sizeOf(file)
	if err != nil {
		return nil, fmt.Errorf("shared memory: %w", err)
	}
	bytes, err := syscall.Mmap(int(file.Fd()), 0, min(size, most), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map shared memory %s: %w", path, err)
	}
	return &Memory{bytes}, nil
}

// sizeOf returns the bytes of a device. An NVDIMM is a character device, which has no size of its own.
func sizeOf(file *os.File) (int, error) {
	info, err := file.Stat()
	if err != nil {
		return 0, err
	}
	if info.Mode()&os.ModeCharDevice == 0 {
		return int(info.Size()), nil
	}
	number := info.Sys().(*syscall.Stat_t).Rdev
	text, err := os.ReadFile(fmt.Sprintf("/sys/dev/char/%d:%d/size", unix.Major(number), unix.Minor(number)))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// Bytes returns the memory, valid until Close.
func (m *Memory) Bytes() []byte { return m.bytes }

// Close unmaps the memory. Other programs keep their mappings.
func (m *Memory) Close() error {
	bytes := m.bytes
	m.bytes = nil
	return syscall.Munmap(bytes)
}

// Peers returns the ranks of this run that share the memory, including the caller's, in
// rising order; an empty list if the run has no memory.
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
