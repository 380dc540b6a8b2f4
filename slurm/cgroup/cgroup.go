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

// jobName is how a job's directory is called with cgroup v2; see [Job].
const jobName = `job_[0-9]+|s[0-9A-Z]{13}`

var (
	version1 = regexp.MustCompile(`^/slurm[^/]*/uid_[0-9]+/(job_[0-9]+)(/|$)`)
	version2 = regexp.MustCompile(`^/` + slicesAbove + `[^/]*slurmstepd\.scope/(` + jobName + `)(/|$)`)
)

// A Job is the name that a job's directory has among cgroups: job_42, or the job's SLUID,
// such as sEKNKTV3WPV500. Slurm 26.05 and newer use the SLUID with cgroup v2, unless
// cgroup.conf has CgroupJobIdPaths=yes.
type Job string

// ID returns the job's number. If the name is a SLUID, only slurmctld knows the number, and
// ok is false.
func (j Job) ID() (id uint32, ok bool) {
	digits, numbered := strings.CutPrefix(string(j), "job_")
	n, err := strconv.ParseUint(digits, 10, 32)
	return uint32(n), numbered && err == nil
}

// possible reports whether the name can be a job's: Slurm's numbers have 32 bits.
func (j Job) possible() bool {
	_, ok := j.ID()
	return ok || strings.HasPrefix(string(j), "s")
}

// JobOf returns the Slurm job of process pid. proc is the path of a /proc.
func JobOf(proc string, pid int) (Job, error) {
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
func parseJob(line string) (Job, bool) {
	for _, pattern := range []*regexp.Regexp{version1, version2} {
		if found := pattern.FindStringSubmatch(pathOf(line)); found != nil {
			return Job(found[1]), Job(found[1]).possible()
		}
	}
	return "", false
}
