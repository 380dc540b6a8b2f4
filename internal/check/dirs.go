package check

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
)

// leastSpace is the space that a node should have for overlays, logs and consoles, in
// bytes.
const leastSpace = 2 << 30

// directories checks where the agent's directories will be. They need not exist: the
// agent makes them on demand.
func directories(_ context.Context, i *inspection) []Result {
	if i.cfgErr != nil {
		return []Result{skipped("directories", "the configuration cannot be read", "")}
	}
	return []Result{
		i.directory("state directory", i.cfg.StateDir(i.Name), true),
		i.directory("run directory", i.cfg.RunDir(i.Name), false),
		i.imageCache(),
	}
}

// imageCache only warns: without room in the cache, VMs use images where they lie.
func (i *inspection) imageCache() Result {
	const name = "image cache"
	r := i.directory(name, i.cfg.ImageCache(i.Name), false)
	if r.Status != OK {
		return r
	}
	there, _, err := nearest(i.Root, i.cfg.ImageCache(i.Name))
	var s unix.Statfs_t
	if err == nil {
		err = unix.Statfs(filepath.Join(i.Root, there), &s)
	}
	if err != nil {
		return wrong(name, err.Error(), "repair the file system")
	}
	return judgeCache(r.Seen, int64(s.Blocks)*s.Bsize, int64(s.Bavail)*s.Bsize, i.cfg.Images.CacheSize.MiB()<<20)
}

// smallImage is the size of an image of a small Linux, in bytes.
const smallImage = 2 << 30

// judgeCache judges a cache that may have limit bytes, on a disk of disk bytes with free
// bytes free. Limit 0 means half of the disk.
func judgeCache(seen string, disk, free, limit int64) Result {
	const name = "image cache"
	if limit == 0 {
		limit = disk / 2
	}
	seen = fmt.Sprintf("%s, at most %d MiB, %d MiB free", seen, limit>>20, free>>20)
	switch {
	case limit < smallImage:
		return warning(name, seen, "choose a larger disk (images.cache_dir) or size (images.cache_size): images that do not fit are read over the network")
	case free-disk/20 < smallImage:
		return warning(name, seen, "free some space, or choose another disk (images.cache_dir): a twentieth is kept free, and images that do not fit are read over the network")
	}
	return ok(name, seen)
}

func (i *inspection) directory(name, dir string, keeps bool) Result {
	there, missing, err := nearest(i.Root, dir)
	if err != nil {
		return wrong(name, err.Error(), "correct [paths] in the configuration")
	}
	if problem := i.passable(there); problem != "" {
		return wrong(name, problem, "chmod o+x it: QEMU, which runs as the job's owner, passes through it to its files")
	}
	var s unix.Statfs_t
	if err := unix.Statfs(filepath.Join(i.Root, there), &s); err != nil {
		return wrong(name, there+": "+err.Error(), "repair the file system")
	}
	seen := dir
	if missing {
		seen += " (made by the first job)"
	}
	return judgeSpace(name, seen, s.Type, s.Bavail*uint64(s.Bsize), keeps)
}

// nearest returns dir, or the nearest directory above it that exists.
func nearest(root, dir string) (there string, missing bool, err error) {
	for there = dir; ; there = filepath.Dir(there) {
		info, err := os.Stat(filepath.Join(root, there))
		switch {
		case err == nil && !info.IsDir():
			return "", false, fmt.Errorf("%s is not a directory", there)
		case err == nil:
			return there, there != dir, nil
		case !errors.Is(err, fs.ErrNotExist):
			return "", false, err
		}
	}
}

// passable names a directory on the way to dir that not all users can enter, or that
// users other than root can change.
func (i *inspection) passable(dir string) string {
	for d := dir; d != "/" && d != "."; d = filepath.Dir(d) {
		info, err := os.Stat(filepath.Join(i.Root, d))
		switch {
		case err != nil:
			return err.Error()
		case info.Mode().Perm()&0o001 == 0:
			return fmt.Sprintf("%s has mode %04o: users cannot pass", d, info.Mode().Perm())
		}
	}
	return ""
}

// File systems that lose what is written to them, or whose locks and owners are
// unreliable.
var (
	inMemory = map[int64]string{unix.TMPFS_MAGIC: "tmpfs", unix.RAMFS_MAGIC: "ramfs"}
	remote   = map[int64]string{unix.NFS_SUPER_MAGIC: "NFS", unix.SMB_SUPER_MAGIC: "SMB", unix.CIFS_SUPER_MAGIC: "CIFS", unix.V9FS_MAGIC: "9p", lustreMagic: "Lustre"}
)

const lustreMagic = 0x0bd00bd0

func judgeSpace(name, seen string, kind int64, free uint64, keeps bool) Result {
	switch {
	case remote[kind] != "":
		return wrong(name, seen+" is on "+remote[kind], "choose a directory on the node's own disk in [paths]: root needs its rights and locks there")
	case keeps && inMemory[kind] != "":
		return warning(name, seen+" is on "+inMemory[kind], "choose a directory on a disk in [paths]: disks of VMs fill the memory here, and a power cut loses the journals")
	case keeps && free < leastSpace:
		return warning(name, fmt.Sprintf("%s, %d MiB free", seen, free>>20), fmt.Sprintf("free some space: below %d MiB the disks of VMs soon find none", leastSpace>>20))
	case keeps:
		return ok(name, fmt.Sprintf("%s, %d GiB free", seen, free>>30))
	}
	return ok(name, seen)
}

// programs checks that only root can change what root runs for users.
func programs(_ context.Context, i *inspection) []Result {
	const name = "programs"
	dir := filepath.Dir(i.Agent)
	for _, file := range []string{i.Agent, filepath.Join(dir, "slurmv-relay"), filepath.Join(dir, "slurmv-guest")} {
		info, err := os.Stat(i.path(file))
		switch {
		case err != nil:
			return []Result{wrong(name, err.Error(), "install Slurm-V on this node, with the same paths everywhere")}
		case info.Mode().Perm()&0o111 == 0 || info.Mode().Perm()&0o022 != 0:
			return []Result{wrong(name, fmt.Sprintf("%s has mode %04o", file, info.Mode().Perm()), "chmod 0755 "+file)}
		}
	}
	return []Result{ok(name, strings.TrimSuffix(dir, "/")+", version "+config.Version)}
}
