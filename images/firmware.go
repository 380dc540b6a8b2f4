package images

import (
	"bytes"
	"encoding/binary"

	"github.com/google/uuid"

	"github.com/slurm-v/slurm-v/config"
)

// WantedFirmware returns the firmware for the image at path: the one that the job names, or
// else the one that the site's catalogue names. It is auto if neither names one.
func WantedFirmware(site config.Images, path string, job config.Firmware) config.Firmware {
	if job != "" && job != config.FirmwareAuto {
		return job
	}
	for _, image := range site.Catalogue {
		if image.Path == path && image.Firmware != config.FirmwareAuto {
			return image.Firmware
		}
	}
	return config.FirmwareAuto
}

// bootSectors is how much of a disk firmwareOf looks at: the master boot record, the header
// of a GPT, and a table of 128 partitions, which is what a GPT has.
const bootSectors = 34

// Types of partitions (UEFI specification, table 5-7; GRUB's manual, "BIOS installation").
var (
	efiSystem = guid("c12a7328-f81f-11d2-ba4b-00a0c93ec93b")
	biosBoot  = guid("21686148-6449-6e6f-744e-656564454649")
)

// guid returns a GUID as it is on disk: the first three numbers have their low byte first.
func guid(text string) (g [16]byte) {
	u := uuid.MustParse(text)
	copy(g[:], u[:])
	binary.LittleEndian.PutUint32(g[:], binary.BigEndian.Uint32(u[:]))
	binary.LittleEndian.PutUint16(g[4:], binary.BigEndian.Uint16(u[4:]))
	binary.LittleEndian.PutUint16(g[6:], binary.BigEndian.Uint16(u[6:]))
	return g
}

// bootCode is the length of the program in a master boot record, in bytes.
const bootCode = 440

// firmwareOf decides which firmware boots a disk that begins with start. It is UEFI if the
// disk has a GPT with an EFI system partition, and nothing that a BIOS could boot: neither a
// program in the master boot record nor a partition for one. Many images boot both ways;
// BIOS is quicker.
func firmwareOf(start []byte) config.Firmware {
	types := partitionTypes(start)
	if types[efiSystem] && !types[biosBoot] && len(bytes.Trim(start[:bootCode], "\x00")) == 0 {
		return config.FirmwareUEFI
	}
	return config.FirmwareBIOS
}

// partitionTypes returns the types of the partitions in a GPT, as far as its table lies in
// start; none if the disk has no GPT. Users write the table, so its numbers may be anything.
func partitionTypes(start []byte) map[[16]byte]bool {
	types := map[[16]byte]bool{}
	if len(start) < 2*sector || !bytes.HasPrefix(start[sector:], []byte("EFI PART")) {
		return types
	}
	le, header := binary.LittleEndian, start[sector:]
	table, count, size := le.Uint64(header[72:]), le.Uint32(header[80:]), uint64(le.Uint32(header[84:]))
	if table >= uint64(len(start)/sector) || size < 128 {
		return types
	}
	entries := start[table*sector:]
	for ; count > 0 && uint64(len(entries)) >= size; count-- {
		types[[16]byte(entries)] = true
		entries = entries[size:]
	}
	return types
}
