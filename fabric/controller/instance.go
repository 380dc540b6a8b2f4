package controller

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// instanceOf returns which process of slurmctld has started this one, below root: the boot's
// id, the process's id and its start time. It is "" if none has.
//
// Scripts run below slurmscriptd, which slurmctld starts anew with itself (slurmscriptd.c),
// perhaps with a script of the site in between.
func instanceOf(root string, pid int) string {
	boot, err := os.ReadFile(filepath.Join(root, "proc/sys/kernel/random/boot_id"))
	for err == nil && pid > 1 {
		var p ancestor
		if p, err = readAncestor(root, pid); err != nil {
			break
		}
		if p.name == "slurmscriptd" || p.name == "slurmctld" {
			return fmt.Sprintf("%s %d %s", bytes.TrimSpace(boot), pid, p.start)
		}
		pid = p.parent
	}
	return ""
}

// An ancestor is a line of /proc/PID/stat.
type ancestor struct {
	name   string
	parent int
	start  string // in ticks after the boot
}

// readAncestor reads a process. Its name is in parentheses and may contain anything; the
// parent is the second field after it, and the start the twentieth.
func readAncestor(root string, pid int) (a ancestor, err error) {
	text, err := os.ReadFile(filepath.Join(root, "proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return a, err
	}
	first, last := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if first < 0 || last < first {
		return a, fmt.Errorf("process %d: its stat has no name", pid)
	}
	f := strings.Fields(string(text[last+1:]))
	if len(f) < 20 {
		return a, fmt.Errorf("process %d: its stat is too short", pid)
	}
	a = ancestor{name: string(text[first+1 : last]), start: f[19]}
	a.parent, err = strconv.Atoi(f[1])
	return a, err
}
