package process

import (
	"os"
	"path/filepath"
	"strings"
)

// ParseStatus returns the words after each name in the text of /proc/PID/status.
func ParseStatus(status string) map[string][]string {
	fields := map[string][]string{}
	for line := range strings.Lines(status) {
		name, value, _ := strings.Cut(line, ":")
		fields[name] = strings.Fields(value)
	}
	return fields
}

// HasAncestor reports whether a program of that name, as the kernel has it, has started the process, or has started one
// that did. proc is /proc.
func HasAncestor(proc, pid, name string) bool {
	for {
		text, err := os.ReadFile(filepath.Join(proc, pid, "status"))
		parent := ParseStatus(string(text))["PPid"]
		if err != nil || len(parent) != 1 || parent[0] == "0" {
			return false
		}
		pid = parent[0]
		if text, err := os.ReadFile(filepath.Join(proc, pid, "comm")); err == nil && string(text) == name+"\n" {
			return true
		}
	}
}
