package ivshmem

import (
	"encoding/binary"
	"os"
	"strings"
	"testing"
)

func makeNVDIMM(t *testing.T, n Regions, index int) (Region, *RegionFile) {
	t.Helper()
	r := n.New(job, index, size).OnNVDIMM()
	m, err := n.Create(t.Context(), r, me, anyNode)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	return r, m
}

// The offsets and values are those of struct nd_pfn_sb. TestSharedMemoryAsNVDIMM has a kernel read them.
func TestNVDIMMDescribesItself(t *testing.T) {
	n := someNode(t)
	r, _ := makeNVDIMM(t, n, 5)
	file, err := os.ReadFile(n.path(r))
	if err != nil {
		t.Fatal(err)
	}
	if len(file) != size+2<<20 || int64(len(file)) != r.FileSize() {
		t.Errorf("the file has %d bytes", len(file))
	}
	block, le := file[4096:8192], binary.LittleEndian
	if got := string(block[:31]); got != "NVDIMM_DAX_INFO\x00slurmv-ivshmem\x00" || block[31] != 5 {
		t.Errorf("signature and UUID are %q, %d", got, block[31])
	}
	for at, want := range map[int]uint64{56: 2 << 20, 64: size / 4096} {
		if got := le.Uint64(block[at:]); got != want {
			t.Errorf("%d is at %d, want %d", got, at, want)
		}
	}
	for at, want := range map[int]uint32{52: 4<<16 | 1, 72: 1, 84: 4096, 88: 4096} {
		if got := le.Uint32(block[at:]); got != want {
			t.Errorf("%d is at %d, want %d", got, at, want)
		}
	}
	if !allZero(file[:4096]) || !allZero(file[8192:]) {
		t.Error("there is something beside the block")
	}
}

// The sum is that of Fletcher over words of 32 bits, in the kernel's order.
func TestFletcher64(t *testing.T) {
	if got := fletcher64([]byte{1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0}); got != (1+3+6)<<32|6 {
		t.Errorf("%#x", got)
	}
}

// A VM that runs still has to know what the device is.
func TestWipeLeavesAnNVDIMMItsHeader(t *testing.T) {
	n := someNode(t)
	r, m := makeNVDIMM(t, n, 0)
	file, err := os.OpenFile(n.path(r), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	before, after := make([]byte, r.FileSize()), make([]byte, r.FileSize())
	if _, err := file.ReadAt(before, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := file.WriteAt([]byte(strings.Repeat("x", size)), r.Header); err != nil {
		t.Fatal(err)
	}
	if err := m.Wipe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := file.ReadAt(after, 0); err != nil {
		t.Fatal(err)
	}
	if string(after) != string(before) {
		t.Error("it is not as at first")
	}
	if err := n.Remove(t.Context(), r, me.UID); err != nil {
		t.Fatal(err)
	}
	if info, err := file.Stat(); err != nil || info.Size() != 0 {
		t.Errorf("%v, %v are left", info, err)
	}
}

// NVDIMMs follow each other in a VM's address space, in pieces that its kernel can map.
func TestNVDIMMsAreWholePieces(t *testing.T) {
	for mib, want := range map[int64]int64{1: 4, 2: 4, 16: 18, 1024: 1026} {
		if got := (Region{Size: mib << 20}).OnNVDIMM().FileSize() >> 20; got != want {
			t.Errorf("%d MiB: %d, want %d", mib, got, want)
		}
	}
	if _, err := (Region{Size: 1 << 30}).OnNVDIMM().OnHugePages(1 << 30); err == nil || !strings.Contains(err.Error(), "do not fill huge pages of 1G") {
		t.Errorf("huge pages of 1 GiB: %v", err)
	}
}
