package vmlaunch

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// A Place is where in Slurm a process runs, as its cgroup says.
type Place struct {
	Job  uint32
	Step uint32
	Node string // "" on a host with one slurmd, whose cgroups do not name it
}

// The steps that have names instead of numbers.
var namedSteps = map[string]uint32{"extern": 0xfffffffc, "batch": 0xfffffffb, "interactive": 0xfffffffa}

// placePattern matches what cgroupV1 and cgroupV2 match, down to the step.
var placePattern = regexp.MustCompile(`^/(?:slurm(?:_([^/]+))?/uid_[0-9]+|system\.slice/(?:([^/]+)_)?slurmstepd\.scope)` +
	`/job_([0-9]+)/step_([a-z]+|[0-9]+)(?:/|$)`)

// PlaceOf returns where the process pid below proc runs. A process cannot choose
// that: the cgroups are root's.
func PlaceOf(proc string, pid int) (Place, error) {
	return searchCgroups(proc, pid, "step", placeOfCgroup)
}

// placeOfCgroup reads one line of /proc/PID/cgroup.
func placeOfCgroup(line string) (Place, bool) {
	found := placePattern.FindStringSubmatch(cgroupPath(line))
	if found == nil {
		return Place{}, false
	}
	job, jobErr := strconv.ParseUint(found[3], 10, 32)
	step, named := namedSteps[found[4]]
	if !named {
		number, err := strconv.ParseUint(found[4], 10, 32)
		if err != nil {
			return Place{}, false
		}
		step = uint32(number)
	}
	return Place{Job: uint32(job), Step: step, Node: found[1] + found[2]}, jobErr == nil
}

// slurmsPattern matches whatever lies below a root that Slurm makes for steps.
var slurmsPattern = regexp.MustCompile(`^/(?:slurm(?:_[^/]+)?|system\.slice/(?:[^/]+_)?slurmstepd\.scope)(?:/|$)`)

// CheckPlace returns an error unless the process pid below proc runs in that step of the
// job. Outside, no limit of the job's would hold, and its end would end nothing.
func CheckPlace(proc string, pid int, job, step uint32) error {
	text, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "cgroup"))
	if err == nil {
		err = checkCgroups(string(text), job, step)
	}
	if err != nil {
		return fmt.Errorf("this process is not in the cgroup of step %d of job %d: %w", step, job, err)
	}
	return nil
}

// checkCgroups reads /proc/PID/cgroup, which has a line for each controller in version 1.
// Slurm uses some of them; in all of these the process must be where it belongs.
func checkCgroups(text string, job, step uint32) error {
	found := false
	for line := range strings.Lines(text) {
		path := cgroupPath(strings.TrimSuffix(line, "\n"))
		if !slurmsPattern.MatchString(path) {
			continue
		}
		place, ok := placeOfCgroup(strings.TrimSuffix(line, "\n"))
		if !ok || place.Job != job || place.Step != step {
			return fmt.Errorf("it is in %s", path)
		}
		found = true
	}
	if !found {
		return errors.New("it is in none of Slurm's; ProctrackType in slurm.conf must be proctrack/cgroup")
	}
	return nil
}
