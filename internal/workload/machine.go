package workload

import (
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// A Machine is what a node is, without its name.
type Machine struct {
	CPU    string `json:"cpu"` // the model
	CPUs   int    `json:"cpus"`
	MiB    int64  `json:"memory_mib"`
	Kernel string `json:"kernel"`

	Topology Topology `json:"topology"`
}

// ReadMachine reads the node's /proc below root.
func ReadMachine(root string) (m Machine, err error) {
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		return m, err
	}
	m.Kernel, m.Topology = unix.ByteSliceToString(name.Release[:]), ReadTopology(root)
	cpus, err1 := os.ReadFile(filepath.Join(root, "proc/cpuinfo"))
	memory, err2 := os.ReadFile(filepath.Join(root, "proc/meminfo"))
	models := values(string(cpus), "model name")
	if m.CPUs = len(models); m.CPUs > 0 {
		m.CPU = models[0]
	}
	for _, size := range values(string(memory), "MemTotal") {
		kib, _ := strconv.ParseInt(strings.TrimSuffix(size, " kB"), 10, 64)
		m.MiB = kib >> 10
	}
	return m, errors.Join(err1, err2)
}

// values returns the values of all lines "key : value".
func values(text, key string) (all []string) {
	for line := range strings.Lines(text) {
		name, value, found := strings.Cut(line, ":")
		if found && strings.TrimSpace(name) == key {
			all = append(all, strings.TrimSpace(value))
		}
	}
	return all
}
