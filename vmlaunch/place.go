package vmlaunch

import (
	"regexp"
	"strconv"
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
