package images

import (
	"encoding/binary"
	"errors"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"testing"

	"github.com/slurm-v/slurm-v/config"
)

var linuxData = guid("0fc63daf-8483-4772-8e79-3d69d8477de4")

// partitioned is the beginning of a disk with a GPT that has partitions of these types.
func partitioned(types ...[16]byte) []byte {
	le, disk := binary.LittleEndian, make([]byte, bootSectors*sector)
	copy(disk[510:], "\x55\xaa")
	header := disk[sector:]
	copy(header, "EFI PART")
	le.PutUint64(header[72:], 2)
	le.PutUint32(header[80:], 128)
	le.PutUint32(header[84:], 128)
	for i, kind := range types {
		copy(disk[2*sector+128*i:], kind[:])
	}
	return disk
}

// with returns a disk with a number of its GPT's header changed.
func with(disk []byte, offset int, number uint32) []byte {
	binary.LittleEndian.PutUint32(disk[sector+offset:], number)
	return disk
}

func TestFirmwareOfADisk(t *testing.T) {
	boot := partitioned(efiSystem)
	boot[0] = 0xeb
	mbr := partitioned(efiSystem)
	copy(mbr[sector:], "no GPT")
	last := append(make([][16]byte, 127), efiSystem)
	tests := map[string]struct {
		disk []byte
		want config.Firmware
	}{
		"for UEFI only":                     {partitioned(linuxData, efiSystem), config.FirmwareUEFI},
		"whose last partition is for UEFI":  {partitioned(last...), config.FirmwareUEFI},
		"for both, with a partition":        {partitioned(linuxData, biosBoot, efiSystem), config.FirmwareBIOS},
		"for both, with boot code":          {boot, config.FirmwareBIOS},
		"for neither":                       {partitioned(linuxData), config.FirmwareBIOS},
		"without a GPT":                     {mbr, config.FirmwareBIOS},
		"that is cut off before its GPT":    {partitioned(efiSystem)[:sector+8], config.FirmwareBIOS},
		"that is cut off in its table":      {partitioned(linuxData, efiSystem)[:2*sector+130], config.FirmwareBIOS},
		"of nothing":                        {nil, config.FirmwareBIOS},
		"whose table is elsewhere":          {with(partitioned(efiSystem), 72, bootSectors), config.FirmwareBIOS},
		"whose table is beyond any":         {with(partitioned(efiSystem), 76, math.MaxUint32), config.FirmwareBIOS},
		"whose entries are of nothing":      {with(with(partitioned(linuxData, efiSystem), 80, math.MaxUint32), 84, 0), config.FirmwareBIOS},
		"whose entries are beyond any":      {with(partitioned(linuxData, efiSystem), 84, math.MaxUint32), config.FirmwareBIOS},
		"with more entries than were read":  {with(partitioned(linuxData, efiSystem), 80, math.MaxUint32), config.FirmwareUEFI},
		"with an entry beyond its own list": {with(partitioned(linuxData, efiSystem), 80, 1), config.FirmwareBIOS},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := firmwareOf(tt.disk); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}

// Whatever a disk begins with, one firmware boots it.
func FuzzFirmwareOf(f *testing.F) {
	f.Add(partitioned(linuxData, efiSystem))
	f.Add(with(partitioned(efiSystem), 84, 0))
	f.Fuzz(func(t *testing.T, disk []byte) {
		if got := firmwareOf(disk); got != config.FirmwareUEFI && got != config.FirmwareBIOS {
			t.Errorf("%q", got)
		}
	})
}

// The disk is what a VM sees, whichever file has its sectors.
func TestFirmwareOfAnImage(t *testing.T) {
	s := newShelf(t)
	raw := write(t, s.path("disk.raw"), 0o644, partitioned(efiSystem))
	bios := write(t, s.path("bios.raw"), 0o644, partitioned(biosBoot, efiSystem))
	qemuImg(t, "convert", "-f", "raw", "-O", "qcow2", raw, s.path("uefi.qcow2"))
	s.mode("uefi.qcow2", 0o644)
	small := s.raw("small.raw", 2*sector, 510, "\x55\xaa")
	tests := map[string]struct {
		path string
		want config.Firmware
	}{
		"a raw disk for UEFI":            {raw, config.FirmwareUEFI},
		"a raw disk for BIOS":            {bios, config.FirmwareBIOS},
		"a small raw disk":               {small, config.FirmwareBIOS},
		"qcow2":                          {s.path("uefi.qcow2"), config.FirmwareUEFI},
		"qcow2 on qcow2":                 {s.qcow2("over,1.qcow2", "-b", "uefi.qcow2", "-F", "qcow2"), config.FirmwareUEFI},
		"an empty disk without a system": {s.sized("empty.qcow2"), config.FirmwareBIOS},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			image, err := s.inspect(tt.path)
			if err != nil {
				t.Fatal(err)
			}
			if image.Firmware != tt.want {
				t.Errorf("%q, want %s", image.Firmware, tt.want)
			}
		})
	}
}

// An image that is replaced while it is inspected is still read as its owner.
func TestQEMUReadsAsTheOwner(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("becomes another user: run as root")
	}
	s := newShelf(t)
	image := Layer{write(t, filepath.Join(s.dir, "disk.raw"), 0o644, partitioned(efiSystem)), Raw}
	if got, err := readWithQEMU(t.Context(), image, nobody); firmwareOf(got) != config.FirmwareUEFI || err != nil {
		t.Fatalf("readable: %x, %v", got, err)
	}
	s.mode("disk.raw", 0o600)
	if got, err := readWithQEMU(t.Context(), image, nobody); err == nil || errors.Is(err, fs.ErrNotExist) {
		t.Errorf("root's own: %x, %v", got, err)
	}
}

func TestWantedFirmware(t *testing.T) {
	site := config.Images{Catalogue: map[string]config.Image{
		"a": {Path: "/a", Firmware: config.FirmwareUEFI}, "b": {Path: "/b", Firmware: config.FirmwareAuto}, "c": {Path: "/b", Firmware: config.FirmwareBIOS},
	}}
	tests := map[string]struct {
		path string
		job  config.Firmware
		want config.Firmware
	}{
		"the job decides":                        {"/a", config.FirmwareBIOS, config.FirmwareBIOS},
		"then the catalogue":                     {"/a", "", config.FirmwareUEFI},
		"the job leaves it to the catalogue":     {"/a", config.FirmwareAuto, config.FirmwareUEFI},
		"the name that says something":           {"/b", "", config.FirmwareBIOS},
		"nobody, for an image of the user's own": {"/x", "", config.FirmwareAuto},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := WantedFirmware(site, tt.path, tt.job); got != tt.want {
				t.Errorf("%s, want %s", got, tt.want)
			}
		})
	}
}
