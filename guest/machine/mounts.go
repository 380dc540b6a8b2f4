package machine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/mountinfo"
)

// Nothing is cached, so each VM sees at once what another VM or the node has written. Large
// messages save some of the round trips that this costs.
const mountOptions = "trans=virtio,version=9p2000.L,msize=262144,cache=none"

// Mounting over one of these would make the VM, and the agent in it, unusable.
var noMounts = []string{"/", "/bin", "/boot", "/dev", "/etc", "/lib", "/lib64", "/proc", "/run", "/sbin", "/sys", "/usr", "/var"}

func checkMount(m guest.Mount) error {
	if strings.ContainsAny(m.Tag, ", \n\x00") {
		return fmt.Errorf("%.80q is not the tag of an export", m.Tag)
	}
	return checkPlace(m.Path)
}

func checkPlace(path string) error {
	switch {
	case !filepath.IsAbs(path) || filepath.Clean(path) != path || strings.ContainsRune(path, 0):
		return fmt.Errorf("%.80q is not a place to mount at: it must be an absolute path without . and ..", path)
	case slices.Contains(noMounts, path):
		return fmt.Errorf("%s is not a place to mount at: the VM needs its own; choose another directory", path)
	}
	return nil
}

// binds gives directories that are mounted their second paths.
func (s *system) binds(mounts []guest.Mount) error {
	for _, mount := range mounts {
		if mount.Of == "" {
			continue
		}
		if err := s.bind(mount); err != nil {
			return fmt.Errorf("mount %s at %s, too: %w", mount.Of, mount.Path, err)
		}
	}
	return nil
}

// bind gives a directory a second path, if it is there: a mount above it may have other
// content. The image may have a symbolic link at the path, or an earlier setup has bound it.
func (s *system) bind(mount guest.Mount) error {
	source, target := s.path(mount.Of), s.path(mount.Path)
	from, err := os.Stat(source)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	if at, err := os.Stat(target); err == nil && os.SameFile(from, at) {
		return nil
	}
	return s.doMount(source, target, "", unix.MS_BIND, "")
}

// mounts mounts the exports by 9p, outer directories first.
func (m *Machine) mounts(ctx context.Context, mounts []guest.Mount) error {
	mounts = slices.DeleteFunc(slices.Clone(mounts), func(m guest.Mount) bool { return m.Tag == "" })
	if len(mounts) == 0 {
		return nil
	}
	m.modules(ctx, "9pnet_virtio", "9p")
	slices.SortStableFunc(mounts, func(a, b guest.Mount) int { return len(a.Path) - len(b.Path) })
	for _, mount := range mounts {
		if err := m.mountOne(mount); err != nil {
			return fmt.Errorf("mount %s at %s: %w", mount.Tag, mount.Path, err)
		}
	}
	return nil
}

func (m *Machine) mountOne(mount guest.Mount) error {
	if m.mounted(mount) {
		return nil
	}
	target := m.path(mount.Path)
	if err := os.MkdirAll(target, 0o755); err != nil {
		return err
	}
	err := m.doMount(mount.Tag, target, "9p", mountFlags(mount), mountOptions)
	switch {
	case errors.Is(err, unix.ENODEV):
		return fmt.Errorf("the image's kernel has neither FUSE (module fuse) nor the 9p file system (modules 9p, 9pnet_virtio): %w", err)
	case errors.Is(err, unix.ENOENT):
		return fmt.Errorf("the VM has no such export: %w", err)
	}
	return err
}

func (s *system) doMount(source, target, fstype string, flags uintptr, data string) error {
	if s.mount != nil {
		return s.mount(source, target, fstype, flags, data)
	}
	return unix.Mount(source, target, fstype, flags, data)
}

// mounted reports whether an earlier setup has mounted the export.
func (s *system) mounted(mount guest.Mount) bool {
	var fs unix.Statfs_t
	if err := unix.Statfs(s.path(mount.Path), &fs); s.root == "" && (err != nil || fs.Type != unix.V9FS_MAGIC) {
		return false // the quick answer, without reading a long list
	}
	mounts, err := mountinfo.Read(s.path())
	return err == nil && slices.ContainsFunc(mounts, func(m mountinfo.Mount) bool {
		return m.Point == mount.Path && m.Type == "9p" && m.Source == mount.Tag
	})
}
