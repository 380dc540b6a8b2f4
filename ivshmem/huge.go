package ivshmem

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
	"github.com/slurm-v/slurm-v/internal/owner"
)

// mountTable lists the mounts that the calling thread sees.
const mountTable = "/proc/thread-self/mounts"

// OnHugePages returns the region made of huge pages of page bytes. They are from the
// first hugetlbfs that everybody may pass through, as QEMU runs as the job's owner. An
// error says why the region must have ordinary pages.
func (r Region) OnHugePages(page int64) (Region, error) {
	if r.Size < page {
		return r, fmt.Errorf("%s is less than a huge page of %s", inMiB(r.Size), inMiB(page))
	}
	if r.FileSize()%page != 0 {
		return r, fmt.Errorf("an NVDIMM of %s and its header of %s do not fill huge pages of %s", inMiB(r.Size), inMiB(r.Header), inMiB(page))
	}
	mounts, err := os.ReadFile(mountTable)
	if err != nil {
		return r, err
	}
	dir, err := HugePages("/", string(mounts), page)
	if err == nil {
		r.Huge, r.Page = dir, page
	}
	return r, err
}

// HugePages finds the directory whose files are made of huge pages of page bytes. mounts
// is in the form of /proc/mounts. The node's files are below root.
func HugePages(root, mounts string, page int64) (dir string, err error) {
	closed := ""
	for _, m := range hugeMounts(mounts) {
		if m.page != inMiB(page) {
			continue
		}
		if info, err := os.Stat(filepath.Join(root, m.dir)); err == nil && info.Mode().Perm()&0o001 != 0 {
			return m.dir, nil
		}
		closed = "; " + m.dir + " is not open to users (mode=0755)"
	}
	return "", fmt.Errorf("no hugetlbfs with pages of %s is mounted%s", inMiB(page), closed)
}

type hugeMount struct {
	dir  string
	page config.Size
}

// hugeMounts returns all hugetlbfs. The kernel writes the size of their pages as
// pagesize=2M or pagesize=1024M.
func hugeMounts(mounts string) (all []hugeMount) {
	for line := range strings.Lines(mounts) {
		f := strings.Fields(line)
		if len(f) < 4 || f[2] != "hugetlbfs" {
			continue
		}
		for option := range strings.SplitSeq(f[3], ",") {
			if size, ok := strings.CutPrefix(option, "pagesize="); ok {
				if page, err := config.ParseSize(size); err == nil {
					all = append(all, hugeMount{f[1], page})
				}
			}
		}
	}
	return all
}

// createHuge makes the region of huge pages, with a link to it in /dev/shm. The link
// belongs to root: in a directory with the sticky bit no user can replace it, and the
// kernel follows it for every user (fs.protected_symlinks).
func (rs Regions) createHuge(ctx context.Context, r Region, as owner.IDs, numa int) (*RegionFile, error) {
	m, err := makeFile(ctx, r.hugeFile(), r, as, numa)
	if err != nil {
		return nil, err
	}
	if err := os.Symlink(r.hugeFile(), filepath.Join(rs.dir, r.Name)); err != nil {
		return nil, errors.Join(err, m.Close())
	}
	return m, nil
}

// hugeFile returns the path of the region's memory if it has huge pages.
func (r Region) hugeFile() string { return filepath.Join(r.Huge, r.Name) }

// noPages reports whether the node has too few huge pages left, or the job may not use as
// many.
func noPages(err error) bool {
	return errors.Is(err, unix.ENOSPC) || errors.Is(err, unix.ENOMEM)
}

// unlink removes the link to a file of huge pages.
func unlink(path, to string) error {
	if is, err := os.Readlink(path); err != nil || is != to {
		return nil
	}
	if err := os.Remove(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
