// Package hugepages counts the huge pages of one node.
//
// The kernel says how many pages are free: [Read]. Some of them are promised to VMs that
// have not taken them yet. [Fit] decides whether more can be promised, and is pure. Package
// vmlaunch keeps the promises in the jobs' journals.
package hugepages

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/slurm-v/slurm-v/config"
)

// Any is the NUMA node of pages that may be on any.
const Any = -1

// A Need is huge pages of one size on one NUMA node.
type Need struct {
	KiB   uint   `json:"kib"`  // of a page
	NUMA  int    `json:"numa"` // node, or Any
	Pages uint64 `json:"pages"`
}

// A pool is the pages of one size on one NUMA node or, with Any, on all of them.
type pool struct {
	kib  uint
	numa int
}

// Free has the free pages of each pool.
type Free map[pool]uint64

// Read asks the kernel for the free pages. sysfs is where sysfs is mounted. Pages that
// programs have reserved by mapping them count as taken; the kernel says only for all NUMA
// nodes together how many these are.
func Read(sysfs string) Free {
	free := Free{}
	for _, dir := range pools(filepath.Join(sysfs, "kernel/mm/hugepages")) {
		n, reserved := count(dir, "free_hugepages"), count(dir, "resv_hugepages")
		free[pool{sizeOf(dir), Any}] = n - min(n, reserved)
	}
	nodes, _ := filepath.Glob(filepath.Join(sysfs, "devices/system/node/node[0-9]*"))
	for _, node := range nodes {
		numa, err := strconv.Atoi(strings.TrimPrefix(filepath.Base(node), "node"))
		for _, dir := range pools(filepath.Join(node, "hugepages")) {
			if err == nil {
				free[pool{sizeOf(dir), numa}] = count(dir, "free_hugepages")
			}
		}
	}
	return free
}

func pools(dir string) []string {
	dirs, _ := filepath.Glob(filepath.Join(dir, "hugepages-*kB"))
	return dirs
}

// sizeOf returns the KiB in a name such as hugepages-2048kB.
func sizeOf(dir string) uint {
	text := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(dir), "hugepages-"), "kB")
	kib, _ := strconv.ParseUint(text, 10, 32)
	return uint(kib)
}

// count reads a number from a file; 0 if the file cannot be read.
func count(dir, file string) uint64 {
	text, _ := os.ReadFile(filepath.Join(dir, file))
	n, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return n
}

// ErrShort matches every shortError.
var ErrShort = errors.New("too few huge pages")

// A shortError says how far a need was from fitting.
type shortError struct {
	Need     Need   // all pages that are needed of the pool
	Free     uint64 // pages that nobody has taken
	Promised uint64 // of these, to others
}

func (e *shortError) Error() string {
	return fmt.Sprintf("need %d pages of %s%s, %d are free, %d of them promised to other jobs",
		e.Need.Pages, config.Size(e.Need.KiB>>10), on(e.Need.NUMA), e.Free, e.Promised)
}

// Is reports whether target is [ErrShort].
func (e *shortError) Is(target error) bool { return target == ErrShort }

func on(numa int) string {
	if numa == Any {
		return ""
	}
	return fmt.Sprintf(" on NUMA node %d", numa)
}

// Fit decides whether needs can be promised, beside what is promised already. If not, the
// error is a [*ShortError] about the first pool that has too few pages: of a NUMA node if
// there is one, else of all nodes together.
func Fit(free Free, promised, needs []Need) error {
	want, others := sums(needs), sums(promised)
	for _, p := range slices.SortedFunc(maps.Keys(want), nodesFirst) {
		if want[p]+others[p] > free[p] {
			return &shortError{
				Need: Need{KiB: p.kib, NUMA: p.numa, Pages: want[p]},
				Free: free[p], Promised: min(others[p], free[p]),
			}
		}
	}
	return nil
}

// nodesFirst orders pools: those of NUMA nodes, then those of all nodes together.
func nodesFirst(a, b pool) int {
	return cmp.Or(cmp.Compare(uint(a.numa), uint(b.numa)), cmp.Compare(a.kib, b.kib))
}

// sums adds needs up by pool. Pages on a NUMA node also count for all nodes together.
func sums(needs []Need) map[pool]uint64 {
	sum := map[pool]uint64{}
	for _, n := range needs {
		sum[pool{n.KiB, Any}] += n.Pages
		if n.NUMA != Any {
			sum[pool{n.KiB, n.NUMA}] += n.Pages
		}
	}
	return sum
}
