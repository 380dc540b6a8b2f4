package jobspec

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/config"
)

const mountForm = "use HOST[:GUEST][:ro] with absolute paths, several joined with commas, or none"

// guestDirs are the directories of a guest that no mount may replace or lie below. With
// foreign ones the guest would not boot, or would no longer be the image that the user
// chose.
var guestDirs = []string{
	"/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32",
	"/proc", "/run", "/sbin", "/sys", "/usr", "/var/lock", "/var/run",
}

func parseMountOption(s *Spec, value string, cfg config.Config) (err error) {
	s.Mounts, err = parseMounts(value, s.WorkDir, cfg)
	return err
}

// parseMounts reads a list of mounts. It adds the working directory unless the list is
// "none".
func parseMounts(value, dir string, cfg config.Config) ([]Mount, error) {
	var mounts []Mount
	none := false
	for entry := range strings.SplitSeq(value, ",") {
		if entry == "none" {
			none = true
			continue
		}
		mount, err := parseMount(entry)
		if err != nil {
			return nil, err
		}
		mounts = append(mounts, mount)
	}
	if !none {
		mounts = withWorkDir(mounts, dir, cfg)
	}
	slices.SortStableFunc(mounts, func(a, b Mount) int { return cmp.Compare(a.Guest, b.Guest) })
	return mounts, nil
}

func parseMount(entry string) (Mount, error) {
	parts := strings.Split(entry, ":")
	readOnly := len(parts) > 1 && parts[len(parts)-1] == "ro"
	if readOnly {
		parts = parts[:len(parts)-1]
	}
	if len(parts) > 2 {
		return Mount{}, fmt.Errorf("%s has too many parts; %s", config.Quote(entry), mountForm)
	}
	for i, path := range parts {
		if !filepath.IsAbs(path) || slices.Contains(strings.Split(path, "/"), "..") {
			return Mount{}, fmt.Errorf("%s is not an absolute path without ..; %s", config.Quote(path), mountForm)
		}
		parts[i] = filepath.Clean(path)
	}
	return Mount{Host: parts[0], Guest: parts[len(parts)-1], ReadOnly: readOnly}, nil
}

// withWorkDir adds the working directory at its own path, unless another mount covers
// that path, or the site allows no mounts.
func withWorkDir(mounts []Mount, dir string, cfg config.Config) []Mount {
	if covered(mounts, dir) || cfg.Limits.MountsPerVM == 0 {
		return mounts
	}
	return append(mounts, Mount{Host: dir, Guest: dir})
}

// covered reports whether a mount decides what is at a path of the guest.
func covered(mounts []Mount, path string) bool {
	return slices.ContainsFunc(mounts, func(m Mount) bool { return within(path, m.Guest) })
}

// AliasWorkDir gives the working directory a second path in the VMs, if they see it and the
// path is free. The guest binds it there, so it takes neither a device nor one of the mounts
// that a VM from a template can have.
func (s *Spec) AliasWorkDir(path string) {
	if s.takesAlias(path) {
		s.WorkDirAlias = path
	}
}

// takesAlias refuses a path below which something is mounted, too: the alias would hide it.
func (s Spec) takesAlias(path string) bool {
	holds := slices.ContainsFunc(s.Mounts, func(m Mount) bool { return within(m.Guest, path) })
	return checkPath(path) == nil && !guestsOwn(path) && covered(s.Mounts, s.WorkDir) && !covered(s.Mounts, path) && !holds
}

func checkMounts(s Spec, cfg config.Config) error {
	if n := len(s.Mounts); n > cfg.Limits.MountsPerVM {
		return fmt.Errorf("%d directories are too many; at most %d, the working directory included, are allowed", n, cfg.Limits.MountsPerVM)
	}
	for i, mount := range s.Mounts {
		if err := mount.check(s.WorkDir); err != nil {
			return err
		}
		if i > 0 && mount.Guest == s.Mounts[i-1].Guest {
			return fmt.Errorf("%s and %s are both to be %s in the VMs; give them different guest paths",
				config.Quote(s.Mounts[i-1].Host), config.Quote(mount.Host), config.Quote(mount.Guest))
		}
		if i > 0 && mount.Guest < s.Mounts[i-1].Guest {
			return fmt.Errorf("%s is out of order", config.Quote(mount.Guest))
		}
	}
	return nil
}

func (m Mount) check(workDir string) error {
	for _, path := range []string{m.Host, m.Guest} {
		if err := checkPath(path); err != nil {
			return err
		}
	}
	if !guestsOwn(m.Guest) {
		return nil
	}
	if m == (Mount{Host: workDir, Guest: workDir}) {
		return fmt.Errorf("the working directory %s cannot be mounted in the VMs, which have their own; submit from another directory or write --vm-mount=none", config.Quote(workDir))
	}
	return fmt.Errorf("%s cannot be mounted over, a VM needs its own; use another guest path, as in %s:/mnt",
		config.Quote(m.Guest), config.Quote(m.Host))
}

// guestsOwn reports whether a path must come from the guest's image. Below /usr/local it
// need not: sites share directories there.
func guestsOwn(path string) bool {
	if path == "/" || path == "/var" {
		return true
	}
	if path != "/usr/local" && within(path, "/usr/local") {
		return false
	}
	return slices.ContainsFunc(guestDirs, func(own string) bool { return within(path, own) })
}
