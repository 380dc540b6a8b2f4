package vmstep

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// dismissShepherd kills the shepherd of an srun: a child that srun forks, and that kills
// the step as soon as srun is killed.
//
// When a batch script ends, slurmstepd kills all its processes, sometimes srun before its
// shepherd. The shepherd would then kill the VM step at once, without the time between TERM
// and KILL in which programs write their last file. The shepherd may be killed once the VMs
// have the map, because from then on nothing depends on srun.
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
