package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// OutOfMemory reports whether the kernel has killed a process for lack of memory in the
// memory cgroup of process pid. The machine's files are below root.
func OutOfMemory(root string, pid int) bool {
	text, _ := os.ReadFile(filepath.Join(root, "proc", strconv.Itoa(pid), "cgroup"))
	for line := range strings.Lines(string(text)) {
		if oomKills(filepath.Join(root, "sys/fs/cgroup"), strings.TrimSuffix(line, "\n")) > 0 {
			return true
		}
	}
	return false
}

// oomKills returns the count of such kills in the cgroup of a line of /proc/PID/cgroup.
func oomKills(mount, line string) uint64 {
	path, file := pathOf(line), ""
	switch _, controllers, _ := strings.Cut(line, ":"); {
	case strings.HasPrefix(line, "0::"):
		file = filepath.Join(mount, path, "memory.events")
	case slices.Contains(strings.Split(strings.SplitN(controllers, ":", 2)[0], ","), "memory"):
		file = filepath.Join(mount, "memory", path, "memory.oom_control")
	default:
		return 0
	}
	text, _ := os.ReadFile(file)
	for count := range strings.Lines(string(text)) {
		if n, found := strings.CutPrefix(count, "oom_kill "); found {
			kills, _ := strconv.ParseUint(strings.TrimSpace(n), 10, 64)
			return kills
		}
	}
	return 0
}
