package images

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

const (
	sector = 512

	// maxVirtual bounds the size of a disk, in bytes, so that no sum overflows.
	maxVirtual = 1 << 60

	// maxBackingName is QEMU's own limit for the name of a backing file.
	maxBackingName = 1023
)

// A header is the description at the beginning of an image.
type header struct {
	format        string
	size          int64  // virtual, in bytes
	backing       string // name of the file below, "" if there is none
	backingFormat string // as recorded, often ""
}

// readHeader reads the header of an image of length bytes. If format is "", it detects the
// format.
func readHeader(r io.ReaderAt, length int64, format string) (header, error) {
	if format != "" && format != Raw && format != QCOW2 {
		return header{}, fmt.Errorf("has the format %q; only qcow2 and raw are supported", format)
	}
	start := make([]byte, min(length, 2*sector))
	if n, err := r.ReadAt(start, 0); n < len(start) {
		return header{}, fmt.Errorf("cannot be read: %w", err)
	}
	switch {
	case format == Raw || format == "" && bootable(start):
		return header{format: Raw, size: (length + sector - 1) / sector * sector}, nil
	case isQCOW2(start):
		return readQCOW2(r, start)
	case format == QCOW2:
		return header{}, errors.New("is not qcow2, as the image above it says")
	}
	return header{}, errors.New(foreign(start))
}

// bootable reports whether a raw image starts like a disk: with the boot signature, which a
// disk with a GPT has too, or with a bare GPT. QEMU itself would take any file for a raw
// image.
func bootable(start []byte) bool {
	return len(start) >= sector && start[510] == 0x55 && start[511] == 0xaa && !isQCOW2(start) ||
		len(start) >= 2*sector && bytes.HasPrefix(start[sector:], []byte("EFI PART"))
}

const notADisk = "is not a disk image: neither qcow2 nor raw with a boot sector"

// foreign names the kind of a file that is not a usable image, and says what helps.
func foreign(start []byte) string {
	const convert = "; convert it with: qemu-img convert -O qcow2"
	for _, known := range []struct {
		offset int
		magic  string
		reason string
	}{
		{0, "KDMV", "is a VMDK image" + convert},
		{0, "# Disk DescriptorFile", "is a VMDK image" + convert},
		{0, "vhdxfile", "is a VHDX image" + convert},
		{0, "conectix", "is a VHD image" + convert},
		{64, "\x7f\x10\xda\xbe", "is a VDI image" + convert},
		{0, "QED\x00", "is a QED image" + convert},
		{0, "QFI\xfb\x00\x00\x00\x01", "is a qcow image of version 1" + convert},
		{0, "LUKS\xba\xbe", "is encrypted"},
		{0, "\x1f\x8b", "is compressed with gzip; unpack it first"},
		{0, "\xfd7zXZ\x00", "is compressed with xz; unpack it first"},
		{0, "\x28\xb5\x2f\xfd", "is compressed with zstd; unpack it first"},
		{32, "SIF_MAGIC", "is an Apptainer container, not a disk image"},
	} {
		if known.offset < len(start) && bytes.HasPrefix(start[known.offset:], []byte(known.magic)) {
			return known.reason
		}
	}
	return notADisk
}

// Numbers of the qcow2 format; see QEMU's docs/interop/qcow2.rst.
const (
	qcow2Magic      = "QFI\xfb"
	qcow2V2Length   = 72
	backingPlace    = 8 // offset (8 bytes) and length (4) of the name of the backing file
	incompatCorrupt = 1 << 1
	incompatData    = 1 << 2
	extensionEnd    = 0
	extensionFormat = 0xe2792aca
	extensionData   = 0x44415441
)

func isQCOW2(start []byte) bool {
	return len(start) >= qcow2V2Length && string(start[:4]) == qcow2Magic &&
		(start[7] == 2 || start[7] == 3) && start[4]|start[5]|start[6] == 0
}

func readQCOW2(r io.ReaderAt, start []byte) (header, error) {
	be := binary.BigEndian
	clusterBits, size := be.Uint32(start[20:]), be.Uint64(start[24:])
	switch {
	case clusterBits < 9 || clusterBits > 21:
		return header{}, fmt.Errorf("is damaged: clusters of 2^%d bytes", clusterBits)
	case size == 0 || size > maxVirtual:
		return header{}, fmt.Errorf("has an impossible size of %d bytes", size)
	case be.Uint32(start[32:]) != 0:
		return header{}, errors.New("is encrypted")
	}
	// The header, its extensions and the backing file's name lie in the first cluster.
	cluster := make([]byte, 1<<clusterBits)
	n, err := r.ReadAt(cluster, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return header{}, fmt.Errorf("cannot be read: %w", err)
	}
	if n < qcow2V2Length {
		return header{}, errCutOff // the file has just been shortened
	}
	h := header{format: QCOW2, size: int64(size)}
	return h, h.readCluster(cluster[:n])
}

// readCluster reads the name of the backing file, and refuses images that need other files.
func (h *header) readCluster(cluster []byte) error {
	be := binary.BigEndian
	length := uint64(qcow2V2Length)
	if cluster[7] == 3 {
		if len(cluster) < 104 {
			return errCutOff
		}
		features := be.Uint64(cluster[72:])
		switch {
		case features&incompatData != 0:
			return errDataFile
		case features&incompatCorrupt != 0:
			return errors.New("is marked as corrupt; repair it with: qemu-img check -r all")
		}
		length = uint64(be.Uint32(cluster[100:]))
	}
	offset, size := be.Uint64(cluster[backingPlace:]), uint64(be.Uint32(cluster[backingPlace+8:]))
	if offset == 0 {
		return h.readExtensions(cluster, length)
	}
	if size == 0 || size > maxBackingName || offset > uint64(len(cluster)) || offset+size > uint64(len(cluster)) {
		return errors.New("is damaged: the name of the file it is based on is out of place")
	}
	name := cluster[offset : offset+size]
	if bytes.IndexByte(name, 0) >= 0 {
		return errors.New("is damaged: the name of the file it is based on has a zero byte")
	}
	h.backing = string(name)
	return h.readExtensions(cluster[:offset], length)
}

// rebase changes the name of the backing file of the image in file. name must not be longer
// than the present name. The user may have replaced the image since it was inspected, so
// rebase reads the header again.
func rebase(file *os.File, name string) error {
	info, err := file.Stat()
	if err != nil {
		return err
	}
	head, err := readHeader(file, info.Size(), QCOW2)
	if err != nil {
		return err
	}
	if len(head.backing) < len(name) {
		return fmt.Errorf("is based on %q now", head.backing)
	}
	var place [12]byte // where the name stands, and its length
	if _, err := file.ReadAt(place[:], backingPlace); err != nil {
		return err
	}
	if _, err := file.WriteAt([]byte(name), int64(binary.BigEndian.Uint64(place[:]))); err != nil {
		return err
	}
	binary.BigEndian.PutUint32(place[8:], uint32(len(name)))
	_, err = file.WriteAt(place[:], backingPlace)
	return err
}

var (
	errCutOff   = errors.New("is damaged: its header is cut off")
	errDataFile = errors.New("keeps its data in another file; convert it with: qemu-img convert -O qcow2")
)

// readExtensions reads the list of extensions from offset on.
func (h *header) readExtensions(area []byte, offset uint64) error {
	be := binary.BigEndian
	for offset+8 <= uint64(len(area)) {
		kind, length := be.Uint32(area[offset:]), uint64(be.Uint32(area[offset+4:]))
		offset += 8
		if offset+length > uint64(len(area)) {
			return errCutOff
		}
		switch kind {
		case extensionEnd:
			return nil
		case extensionData:
			return errDataFile
		case extensionFormat:
			h.backingFormat = string(area[offset : offset+length])
		}
		offset += (length + 7) &^ 7
	}
	return nil
}
