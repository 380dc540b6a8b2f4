package guest

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Cgroups is a directory of a cgroup hierarchy, version 1 or 2, in which each program gets
// a cgroup of its own. The cgroups serve to find every process of a program; they limit
// nothing.
type Cgroups struct{ dir string }

// newCgroups makes the directory dir below a mounted cgroup hierarchy, and nothing elsewhere.
func newCgroups(dir string) (*Cgroups, error) {
	if _, err := os.Stat(filepath.Join(filepath.Dir(dir), "cgroup.procs")); err != nil {
		return nil, fmt.Errorf("make a cgroup for programs: %s is not in a cgroup hierarchy: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make a cgroup for programs: %w", err)
	}
	return &Cgroups{dir}, nil
}

// OwnCgroups makes a directory below the cgroup of this process, in whichever hierarchy
// there is. So whatever manages this process manages its programs too.
func OwnCgroups() (*Cgroups, error) {
	text, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return nil, fmt.Errorf("find the agent's cgroup: %w", err)
	}
	for _, dir := range cgroupDirs(string(text)) {
		var c *Cgroups
		if c, err = newCgroups(filepath.Join("/sys/fs/cgroup", dir, "slurmv-programs")); err == nil {
			return c, nil
		}
	}
	return nil, err
}

// cgroupDirs lists the possible directories, below /sys/fs/cgroup, of a process's cgroups.
// text is the process's /proc/PID/cgroup. Version 2 comes first, alone or beside version 1,
// then the version 1 hierarchies that most kernels have.
func cgroupDirs(text string) []string {
	paths := map[string]string{}
	for line := range strings.Lines(text) {
		if fields := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3); len(fields) == 3 {
			paths[fields[1]] = fields[2]
		}
	}
	dirs := []string{}
	for _, h := range []struct{ name, dir string }{{"", "."}, {"", "unified"}, {"pids", "pids"}, {"freezer", "freezer"}, {"name=systemd", "systemd"}} {
		if path, in := paths[h.name]; in {
			dirs = append(dirs, filepath.Join(h.dir, path))
		}
	}
	return dirs
}

// Clear kills and removes the programs of an earlier agent.
func (c *Cgroups) Clear() error {
	entries, err := os.ReadDir(c.dir)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if !entry.IsDir() {
			continue
		}
		g := &cgroup{filepath.Join(c.dir, entry.Name())}
		g.kill()
		if err := g.remove(); err != nil {
			return err
		}
	}
	return nil
}

// A cgroup holds the processes of one program.
type cgroup struct{ dir string }

func (c *Cgroups) create(name string) (*cgroup, error) {
	dir := filepath.Join(c.dir, name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, fmt.Errorf("make the program's cgroup: %w", err)
	}
	return &cgroup{dir}, nil
}

// procs is the file to which a process writes 0 to enter.
func (g *cgroup) procs() string { return filepath.Join(g.dir, "cgroup.procs") }

// kill kills every process in the cgroup and below, and returns when none is left. It waits
// for processes in an uninterruptible sleep.
func (g *cgroup) kill() {
	for pause := 100 * time.Microsecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if !g.killOnce() {
			return
		}
		time.Sleep(pause)
	}
}

// killOnce reports whether there was anything to kill.
func (g *cgroup) killOnce() bool {
	// Since Linux 5.14 the kernel kills the whole cgroup at once, so no process can escape
	// by forking.
	_ = os.WriteFile(filepath.Join(g.dir, "cgroup.kill"), []byte("1"), 0)
	found := false
	_ = filepath.WalkDir(g.dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == "cgroup.procs" {
			found = killAll(path) || found
		}
		return nil
	})
	return found
}

// killAll kills the processes that a cgroup.procs file lists.
func killAll(path string) (found bool) {
	list, err := os.ReadFile(path)
	if err != nil {
		return false // the cgroup has gone
	}
	for _, word := range bytes.Fields(list) {
		if pid, err := strconv.Atoi(string(word)); err == nil && pid > 0 {
			found = true
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	return found
}

// remove removes the empty cgroup and those below it.
func (g *cgroup) remove() error {
	var dirs []string
	_ = filepath.WalkDir(g.dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() {
			dirs = append(dirs, path)
		}
		return nil
	})
	for i := len(dirs) - 1; i >= 0; i-- {
		if err := removeDir(dirs[i]); err != nil {
			return fmt.Errorf("remove the program's cgroup: %w", err)
		}
	}
	return nil
}

// removeDir tries for a while, because a process that has just died may still hold the
// cgroup for an instant.
func removeDir(dir string) (err error) {
	for range 100 {
		err = os.Remove(dir)
		if !errors.Is(err, unix.EBUSY) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
