package machine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/slurm-v/slurm-v/internal/mountinfo"
)

// A partition is the place of the root file system on a disk.
type partition struct {
	Device string // "/dev/vda1", or the disk if it has no partitions
	Disk   string // "/dev/vda"
	Number int    // 0 without partitions
	Room   int64  // sectors between it and the end of the disk; 0 if it is not the last partition
	Volume string // "/dev/mapper/rl-root" if the root is on a logical volume of LVM in it, else ""
	FSType string
}

// growRoot makes the root file system as large as its disk. If the image lacks a tool for
// it, the error names the tool.
func (m *Machine) growRoot(ctx context.Context) error {
	p, err := m.rootPartition()
	if err != nil {
		return err
	}
	if p.Number > 0 && p.Room > spare {
		if err := m.growPartition(ctx, p); err != nil {
			return err
		}
	}
	switch p.FSType {
	case "ext2", "ext3", "ext4":
		return m.command(ctx, "", "resize2fs", cmp.Or(p.Volume, p.Device))
	case "xfs":
		return m.command(ctx, "", "xfs_growfs", "/")
	case "btrfs":
		return m.command(ctx, "", "btrfs", "filesystem", "resize", "max", "/")
	}
	return fmt.Errorf("do not know how to grow %s", p.FSType)
}

// growPartition makes the partition as large as the disk allows, and gives all its room to the
// logical volume in it, if there is one.
func (m *Machine) growPartition(ctx context.Context, p partition) error {
	// The kernel holds the partition busy, so sfdisk only writes the table and partx
	// tells the kernel the new size.
	err := m.command(ctx, ",+\n", "sfdisk", "--no-reread", "--no-tell-kernel", "-N", strconv.Itoa(p.Number), p.Disk)
	if err == nil {
		err = m.command(ctx, "", "partx", "-u", "-n", strconv.Itoa(p.Number), p.Disk)
	}
	if err == nil && p.Volume != "" {
		err = m.command(ctx, "", "pvresize", p.Device)
	}
	if err == nil && p.Volume != "" {
		err = m.command(ctx, "", "lvextend", "-l", "+100%FREE", p.Volume)
	}
	return err
}

// spare is the room behind the last partition, in sectors, that is not worth growing into.
// Partitioning tools leave about that much free: 1 MiB for alignment, and the copy of a
// GPT.
const spare = 4096

// rootPartition finds the partition of the root file system.
func (m *Machine) rootPartition() (p partition, err error) {
	mounts, err := mountinfo.Read(m.path())
	if err != nil {
		return p, err
	}
	device := ""
	for _, mount := range mounts {
		if mount.Point == "/" {
			device, p.FSType = mount.Device, mount.Type
		}
	}
	dir, err := filepath.EvalSymlinks(m.path("sys/dev/block", device))
	if err != nil || device == "" {
		return p, errors.New("it is not on a disk")
	}
	if p.Volume, dir, err = logicalVolume(dir); err != nil {
		return p, err
	}
	p.Device = "/dev/" + filepath.Base(dir)
	p.Disk = p.Device
	number, err := readNumber(filepath.Join(dir, "partition"))
	if err != nil {
		return p, nil // the whole disk
	}
	p.Disk, p.Number = "/dev/"+filepath.Base(filepath.Dir(dir)), int(number)
	p.Room, err = roomBehind(dir)
	return p, err
}

// logicalVolume returns the name of the device if it is a logical volume of LVM, and the
// directory in sysfs of what it lies on. For any other device it returns the directory itself.
func logicalVolume(dir string) (volume, below string, err error) {
	uuid, _ := os.ReadFile(filepath.Join(dir, "dm/uuid"))
	if !strings.HasPrefix(string(uuid), "LVM-") {
		return "", dir, nil
	}
	name, err := os.ReadFile(filepath.Join(dir, "dm/name"))
	if err != nil {
		return "", "", err
	}
	slaves, _ := filepath.Glob(filepath.Join(dir, "slaves/*"))
	if len(slaves) != 1 {
		return "", "", fmt.Errorf("its logical volume lies on %d partitions", len(slaves))
	}
	below, err = filepath.EvalSymlinks(slaves[0])
	return "/dev/mapper/" + strings.TrimSpace(string(name)), below, err
}

// roomBehind returns the number of sectors between a partition and the end of its disk, or
// 0 if another partition lies there.
func roomBehind(dir string) (int64, error) {
	end, err := partitionEnd(dir)
	if err != nil {
		return 0, err
	}
	disk := filepath.Dir(dir)
	size, err := readNumber(filepath.Join(disk, "size"))
	if err != nil {
		return 0, err
	}
	others, _ := filepath.Glob(filepath.Join(disk, "*", "partition"))
	for _, other := range others {
		if e, err := partitionEnd(filepath.Dir(other)); err == nil && e > end {
			return 0, nil
		}
	}
	return size - end, nil
}

func partitionEnd(dir string) (int64, error) {
	start, err := readNumber(filepath.Join(dir, "start"))
	if err != nil {
		return 0, err
	}
	size, err := readNumber(filepath.Join(dir, "size"))
	return start + size, err
}

func readNumber(path string) (int64, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.ParseInt(strings.TrimSpace(string(text)), 10, 64)
}
