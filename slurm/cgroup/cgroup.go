// Package cgroup reads, from the cgroups in which Slurm puts the processes of jobs: the
// job and step of a process, the CPUs that Slurm confines it to, and whether the kernel
// has killed a process of its cgroup for lack of memory.
//
// Slurm's cgroups belong to root. A process can neither choose its cgroup nor make
// cgroups that look like Slurm's.
package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// Where slurmd puts the processes of a job. With cgroup v1 it is below /slurm or
// /slurm_<node> of a controller, with v2 below slurmd's own scope, in system.slice or
// where the site has put slurmd. Both belong to root, so no user can make a cgroup that
// looks like another job's: all that is above the scope are slices, and what users can make
// is below a service of theirs, such as user@1000.service.
const slicesAbove = `(?:[^/]+\.slice/)*`

var (
	version1 = regexp.MustCompile(`^/slurm[^/]*/uid_[0-9]+/job_([0-9]+)(/|$)`)
	version2 = regexp.MustCompile(`^/` + slicesAbove + `[^/]*slurmstepd\.scope/job_([0-9]+)(/|$)`)
)

// JobOf returns the id of the Slurm job of process pid. proc is the path of a /proc.
func JobOf(proc string, pid int) (uint32, error) {
	return search(proc, pid, "job", parseJob)
}

// search returns the result of read for the first line of /proc/PID/cgroup that read
// accepts. unit names what read looks for, for errors.
func search[T any](proc string, pid int, unit string, read func(line string) (T, bool)) (none T, err error) {
	text, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "cgroup"))
	if err != nil {
		return none, fmt.Errorf("find the job of process %d: %w", pid, err)
	}
	for line := range strings.Lines(string(text)) {
		if found, ok := read(strings.TrimSuffix(line, "\n")); ok {
			return found, nil
		}
	}
	return none, fmt.Errorf("process %d is not in the cgroup of a Slurm %s", pid, unit)
}

// pathOf returns the path in a line of /proc/PID/cgroup, "id:controllers:path".
func pathOf(line string) string {
	fields := strings.SplitN(line, ":", 3)
	if len(fields) != 3 {
		return ""
	}
	return fields[2]
}

// parseJob reads the job in one line of /proc/PID/cgroup.
func parseJob(line string) (uint32, bool) {
	for _, pattern := range []*regexp.Regexp{version1, version2} {
		if found := pattern.FindStringSubmatch(pathOf(line)); found != nil {
			job, err := strconv.ParseUint(found[1], 10, 32)
			return uint32(job), err == nil
		}
	}
	return 0, false
}
