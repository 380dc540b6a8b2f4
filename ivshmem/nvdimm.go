package ivshmem

import (
	"encoding/binary"

	"golang.org/x/sys/unix"
)

// nvdimmHeader is how many bytes of an NVDIMM precede the memory that VMs share. Linux maps persistent memory in
// pieces of this size.
const nvdimmHeader = 2 << 20

// OnNVDIMM returns the region in the form of an NVDIMM, which Linux offers as the device /dev/daxN.0.
func (r Region) OnNVDIMM() Region {
	r.Header = nvdimmHeader
	return r
}

// FileSize is the size of the region's file in bytes. NVDIMMs follow each other in a VM's address space, so each is made
// of whole pieces.
func (r Region) FileSize() int64 {
	if r.Header == 0 {
		return r.Size
	}
	return (r.Header + r.Size + nvdimmHeader - 1) / nvdimmHeader * nvdimmHeader
}

// infoBlock returns the 4 KiB that tell Linux what is on an NVDIMM: struct nd_pfn_sb of drivers/nvdimm/pfn.h, for a device
// to map (device-DAX) whose pages the guest describes in its own memory. Programs map it in pages of 4 KiB. The kernel
// tells the guest agent its UUID: see guest/machine.
func (r Region) infoBlock() []byte {
	const page, structPage, inRAM = 4096, 64, 1
	b, le := make([]byte, page), binary.LittleEndian
	copy(b, "NVDIMM_DAX_INFO\x00")
	copy(b[16:], "slurmv-ivshmem")
	b[31] = byte(r.Index)
	le.PutUint16(b[52:], 1) // version 1.4
	le.PutUint16(b[54:], 4)
	le.PutUint64(b[56:], uint64(r.Header))
	le.PutUint64(b[64:], uint64((r.FileSize()-r.Header)/page))
	le.PutUint32(b[72:], inRAM)
	le.PutUint32(b[84:], page) // alignment of mappings
	le.PutUint32(b[88:], page)
	le.PutUint16(b[92:], structPage)
	le.PutUint64(b[page-8:], fletcher64(b))
	return b
}

// infoAt is where the block is.
const infoAt = 4096

// fletcher64 is the checksum of struct nd_pfn_sb: nd_fletcher64 of drivers/nvdimm/core.c.
func fletcher64(b []byte) uint64 {
	var low uint32
	var high uint64
	for ; len(b) >= 4; b = b[4:] {
		low += binary.LittleEndian.Uint32(b)
		high += uint64(low)
	}
	return high<<32 | uint64(low)
}

// describe writes the header of an NVDIMM. Files of huge pages cannot be written to, so it maps it.
func (f *RegionFile) describe(r Region) error {
	if r.Header == 0 {
		return nil
	}
	header, err := unix.Mmap(int(f.file.Fd()), 0, int(r.Header), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return err
	}
	copy(header[infoAt:], r.infoBlock())
	return unix.Munmap(header)
}
