package vmlaunch

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// peerOf asks the kernel who is at the other end.
func peerOf(conn *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	control := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if control != nil {
		return nil, control
	}
	return cred, err
}

// Where slurmd puts the processes of a job: with cgroup v1 below /slurm or
// /slurm_<node> of a controller, with v2 below its own scope. Both are root's, so
// no user can make a cgroup that looks like another job's.
var (
	cgroupV1 = regexp.MustCompile(`^/slurm[^/]*/uid_[0-9]+/job_([0-9]+)(/|$)`)
	cgroupV2 = regexp.MustCompile(`^/system\.slice/[^/]*slurmstepd\.scope/job_([0-9]+)(/|$)`)
)

// jobOfProcess returns the Slurm job that a process below proc belongs to.
func jobOfProcess(proc string, pid int) (uint32, error) {
	return searchCgroups(proc, pid, "job", jobOfCgroup)
}

// searchCgroups returns what read finds in the first line of /proc/PID/cgroup that
// it knows; unit is the thing of Slurm that read looks for.
func searchCgroups[T any](proc string, pid int, unit string, read func(line string) (T, bool)) (none T, err error) {
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

// cgroupPath returns the path in a line of /proc/PID/cgroup, "id:controllers:path".
func cgroupPath(line string) string {
	fields := strings.SplitN(line, ":", 3)
	if len(fields) != 3 {
		return ""
	}
	return fields[2]
}

// jobOfCgroup reads one line of /proc/PID/cgroup.
func jobOfCgroup(line string) (uint32, bool) {
	for _, pattern := range []*regexp.Regexp{cgroupV1, cgroupV2} {
		if found := pattern.FindStringSubmatch(cgroupPath(line)); found != nil {
			job, err := strconv.ParseUint(found[1], 10, 32)
			return uint32(job), err == nil
		}
	}
	return 0, false
}
