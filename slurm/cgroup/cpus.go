package cgroup

import (
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/internal/cpulist"
)

// CPUs returns the kernel's numbers of the CPUs that Slurm has given to the step of
// process pid, and to no other job. The machine's files are below root. If Slurm does not
// confine jobs to CPUs, that is an error.
func CPUs(root string, pid int) ([]int, error) {
	list, err := search(filepath.Join(root, "proc"), pid, "job", func(line string) (string, bool) {
		return cpusetOf(filepath.Join(root, "sys/fs/cgroup"), line)
	})
	return cpulist.Parse(list), err
}

// cpusetOf returns the CPUs of the cgroup in a line of /proc/PID/cgroup, if the cgroup is
// a job's and Slurm has chosen its CPUs.
//
// With cgroup v1, a job has a cpuset cgroup only if Slurm confines jobs to CPUs. With v2
// it always has one, whose cpuset.cpus is empty if Slurm does not confine jobs.
func cpusetOf(mount, line string) (string, bool) {
	path := pathOf(line)
	if fields := strings.SplitN(line, ":", 3); len(fields) == 3 && slices.Contains(strings.Split(fields[1], ","), "cpuset") {
		cpus := readLine(filepath.Join(mount, "cpuset", path, "cpuset.cpus"))
		return cpus, version1.MatchString(path) && cpus != ""
	}
	for chosen, effective := false, ""; version2.MatchString(path); path = filepath.Dir(path) {
		chosen = chosen || readLine(filepath.Join(mount, path, "cpuset.cpus")) != ""
		if effective == "" {
			effective = readLine(filepath.Join(mount, path, "cpuset.cpus.effective"))
		}
		if chosen && effective != "" {
			return effective, true
		}
	}
	return "", false
}

// readLine reads a file of one line; "" if there is none.
func readLine(file string) string {
	text, _ := os.ReadFile(file)
	return strings.TrimSpace(string(text))
}
