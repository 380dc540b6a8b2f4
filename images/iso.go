package images

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
)

// The seed disk is an ISO 9660 file system (ECMA-119) with one directory. It has Rock Ridge
// names (RRIP 1.09), because plain ISO 9660 does not allow the name "user-data". This code
// copies data straight from file to file. A library would first collect it in a temporary
// directory, and leave it there when it is killed.

const (
	isoSector = 2048

	// The places of the parts, in sectors. The first 16 sectors are not used.
	isoVolume     = 16
	isoTerminator = 17
	isoPathLittle = 18
	isoPathBig    = 19
	isoRoot       = 20
	isoFiles      = 21
)

// An isoFile is one file of the root directory.
type isoFile struct {
	name       string // lower-case letters and "-"
	size       int64
	data       io.Reader
	executable bool
}

// isoDate is 1 January 2000, UTC. The true date does not matter.
var isoDate = []byte{100, 1, 1, 0, 0, 0, 0}

// writeISO fills disk, which must be empty, with a volume of these files.
func writeISO(disk *os.File, label string, files []isoFile) error {
	files = slices.SortedFunc(slices.Values(files), func(a, b isoFile) int { return strings.Compare(a.name, b.name) })
	head, starts, sectors := isoLayout(label, files)
	if len(head) > (isoFiles-isoVolume)*isoSector {
		return errors.New("too many files for one directory sector")
	}
	if _, err := disk.WriteAt(head, isoVolume*isoSector); err != nil {
		return err
	}
	for i, f := range files {
		if _, err := disk.Seek(int64(starts[i])*isoSector, io.SeekStart); err != nil {
			return err
		}
		// If data is a file too, the kernel does the copying.
		switch n, err := io.Copy(disk, f.data); {
		case err != nil:
			return err
		case n != f.size:
			return fmt.Errorf("%s changed while it was copied: %d bytes instead of %d", f.name, n, f.size)
		}
	}
	return disk.Truncate(int64(sectors) * isoSector)
}

// isoLayout returns the descriptors and the directory, the first sector of each
// file and the number of sectors of the volume.
func isoLayout(label string, files []isoFile) (head []byte, starts []uint32, sectors uint32) {
	sectors = isoFiles
	for _, f := range files {
		starts = append(starts, sectors)
		sectors += uint32((f.size + isoSector - 1) / isoSector)
	}
	for _, part := range [][]byte{
		isoDescriptor(label, sectors),
		append([]byte{255}, "CD001\x01"...),
		isoPathTable(binary.LittleEndian),
		isoPathTable(binary.BigEndian),
		isoDirectory(files, starts),
	} {
		head = append(head, part...)
		head = append(head, make([]byte, -len(head)&(isoSector-1))...)
	}
	return head, starts, sectors
}

// isoDescriptor is the primary volume descriptor, ECMA-119 section 8.4.
func isoDescriptor(label string, sectors uint32) []byte {
	d := make([]byte, isoSector)
	for _, text := range []struct {
		offset, length int
		value          string
	}{
		{8, 32, ""}, {40, 32, label}, {190, 128, ""}, {318, 128, ""}, {446, 128, ""}, {574, 128, ""},
		{702, 37, ""}, {739, 37, ""}, {776, 37, ""},
	} {
		copy(d[text.offset:], text.value+strings.Repeat(" ", text.length-len(text.value)))
	}
	d[0] = 1
	copy(d[1:], "CD001\x01")
	copy(d[80:], both32(sectors))
	copy(d[120:], both16(1)) // volumes in the set
	copy(d[124:], both16(1)) // this volume's number
	copy(d[128:], both16(isoSector))
	copy(d[132:], both32(10)) // bytes of a path table
	binary.LittleEndian.PutUint32(d[140:], isoPathLittle)
	binary.BigEndian.PutUint32(d[148:], isoPathBig)
	copy(d[156:], isoRecord("\x00", isoRoot, isoSector, true, nil))
	for _, date := range []int{813, 830, 847, 864} {
		copy(d[date:], strings.Repeat("0", 16)) // not specified
	}
	d[881] = 1 // version of the directory's structure
	return d
}

// isoPathTable has one entry: the root directory.
func isoPathTable(order binary.AppendByteOrder) []byte {
	t := order.AppendUint32([]byte{1, 0}, isoRoot)
	return append(order.AppendUint16(t, 1), 0, 0)
}

// isoDirectory is the root directory.
func isoDirectory(files []isoFile, starts []uint32) []byte {
	const directory, readOnly, program = 0o040555, 0o100400, 0o100555
	// SP says that there are extensions, ER that they are Rock Ridge.
	self := slices.Concat([]byte{'S', 'P', 7, 1, 0xbe, 0xef, 0},
		append([]byte{'E', 'R', 18, 1, 10, 0, 0, 1}, "RRIP_1991A"...), rockMode(directory, 2))
	d := isoRecord("\x00", isoRoot, isoSector, true, self)
	d = append(d, isoRecord("\x01", isoRoot, isoSector, true, rockMode(directory, 2))...)
	for i, f := range files {
		mode := uint32(readOnly)
		if f.executable {
			mode = program
		}
		plain := strings.ToUpper(strings.ReplaceAll(f.name, "-", "_")) + ".;1"
		d = append(d, isoRecord(plain, starts[i], uint32(f.size), false, append(rockMode(mode, 1), rockName(f.name)...))...)
	}
	return d
}

// isoRecord is one entry of a directory, ECMA-119 section 9.1.
func isoRecord(name string, start, size uint32, directory bool, extensions []byte) []byte {
	flags := byte(0)
	if directory {
		flags = 2
	}
	r := slices.Concat([]byte{0, 0}, both32(start), both32(size), isoDate,
		[]byte{flags, 0, 0}, both16(1), []byte{byte(len(name))}, []byte(name))
	r = append(r, make([]byte, len(r)&1)...)
	r = append(r, extensions...)
	r = append(r, make([]byte, len(r)&1)...)
	r[0] = byte(len(r))
	return r
}

// rockMode is the entry PX: mode, links, owner and group, which is root.
func rockMode(mode, links uint32) []byte {
	return slices.Concat([]byte{'P', 'X', 36, 1}, both32(mode), both32(links), both32(0), both32(0))
}

// rockName is the entry NM.
func rockName(name string) []byte {
	return append([]byte{'N', 'M', byte(5 + len(name)), 1, 0}, name...)
}

// both32 and both16 return a number in both byte orders, one after the other, as ISO 9660
// stores it.
func both32(v uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.LittleEndian.AppendUint32(nil, v), v)
}

func both16(v uint16) []byte {
	return binary.BigEndian.AppendUint16(binary.LittleEndian.AppendUint16(nil, v), v)
}
