package vmstep

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// dismissShepherd kills the shepherd of an srun: a child that it forks, which
// kills the step the moment srun dies without a word.
//
// That is what happens when a batch script ends: slurmstepd kills all processes
// of the script, srun now and then before its shepherd. The VM step would be
// killed outright instead of getting the time between TERM and KILL, in which
// programs write their last file. Once the VMs have the map, nothing depends on
// srun's life any more.
func dismissShepherd(srun int) {
	for _, child := range childrenOf(srun) {
		if child.name == "srun" {
			_ = syscall.Kill(child.pid, syscall.SIGKILL)
		}
	}
}

type process struct {
	pid, parent int
	name        string
}

func childrenOf(pid int) []process {
	files, _ := filepath.Glob("/proc/[0-9]*/stat")
	var children []process
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			continue // ended meanwhile
		}
		if p, err := parseStat(string(text)); err == nil && p.parent == pid {
			children = append(children, p)
		}
	}
	return children
}

// parseStat reads "pid (name) state ppid …". The name may contain anything.
func parseStat(text string) (process, error) {
	open, end := strings.IndexByte(text, '('), strings.LastIndexByte(text, ')')
	if open < 1 || end < open {
		return process{}, fmt.Errorf("%q is no process status", text)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(text[:open]))
	if err != nil {
		return process{}, err
	}
	rest := strings.Fields(text[end+1:])
	if len(rest) < 2 {
		return process{}, fmt.Errorf("%q is no process status", text)
	}
	parent, err := strconv.Atoi(rest[1])
	return process{pid: pid, parent: parent, name: text[open+1 : end]}, err
}
