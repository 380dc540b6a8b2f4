// Package mountinfo reads the kernel's list of mounts, /proc/self/mountinfo (proc(5)).
package mountinfo

import (
	"os"
	"path/filepath"
	"strings"
)

// A Mount is a mounted file system.
type Mount struct {
	Device  string // "MAJOR:MINOR" of the file system's files
	Point   string // the path of the mount point, below the root directory of the reader
	Type    string // of the file system: ext4, 9p, fuse.slurm-v
	Source  string // what is mounted: a device, the tag of an export, or any word
	Options string // of the file system, with commas between them; the kernel's escapes stay in it
}

// Read returns the mounts that this process sees. root is "/", or another directory in tests.
func Read(root string) ([]Mount, error) {
	text, err := os.ReadFile(filepath.Join(root, "proc/self/mountinfo"))
	return Parse(string(text)), err
}

// Parse returns the mounts of the text, in its order. It skips lines of another form.
func Parse(text string) (all []Mount) {
	for line := range strings.Lines(text) {
		if m, ok := parseLine(strings.TrimSuffix(line, "\n")); ok {
			all = append(all, m)
		}
	}
	return all
}

// parseLine cuts at single spaces, because the source of a mount may be empty. Before the
// hyphen there are optional fields, any number of them.
func parseLine(line string) (m Mount, ok bool) {
	mount, fileSystem, _ := strings.Cut(line, " - ")
	l, r := strings.Split(mount, " "), strings.Split(fileSystem, " ")
	if len(l) < 6 || len(r) < 3 {
		return m, false
	}
	return Mount{Device: l[2], Point: unescape.Replace(l[4]), Type: r[0], Source: unescape.Replace(r[1]), Options: r[2]}, true
}

// unescape knows the characters that the kernel (fs/proc_namespace.c) writes as octal numbers.
var unescape = strings.NewReplacer(`\040`, " ", `\011`, "\t", `\012`, "\n", `\134`, `\`, `\043`, "#")
