package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// A Step says in which step of which job a process runs.
type Step struct {
	Job    Job
	StepID uint32
	Node   string // Slurm's name of the node; "" if the host has a single slurmd, whose cgroups omit it
}

// The steps that have names instead of numbers.
var namedSteps = map[string]uint32{"extern": 0xfffffffc, "batch": 0xfffffffb, "interactive": 0xfffffffa}

// stepPattern matches the paths that version1 and version2 match, but down to the step.
var stepPattern = regexp.MustCompile(`^/(?:slurm(?:_([^/]+))?/uid_[0-9]+|` + slicesAbove + `(?:([^/]+)_)?slurmstepd\.scope)` +
	`/(` + jobName + `)/step_([a-z]+|[0-9]+)(?:/|$)`)

// StepOf returns the step of process pid. proc is the path of a /proc.
func StepOf(proc string, pid int) (Step, error) {
	return search(proc, pid, "step", parseStep)
}

// parseStep reads the step in one line of /proc/PID/cgroup.
func parseStep(line string) (Step, bool) {
	found := stepPattern.FindStringSubmatch(pathOf(line))
	if found == nil {
		return Step{}, false
	}
	step, named := namedSteps[found[4]]
	if !named {
		number, err := strconv.ParseUint(found[4], 10, 32)
		if err != nil {
			return Step{}, false
		}
		step = uint32(number)
	}
	job := Job(found[3])
	return Step{Job: job, StepID: step, Node: found[1] + found[2]}, job.possible()
}

// slurmsPattern matches every path below a cgroup that Slurm makes for steps.
var slurmsPattern = regexp.MustCompile(`^/(?:slurm(?:_[^/]+)?|` + slicesAbove + `(?:[^/]+_)?slurmstepd\.scope)(?:/|$)`)

// CheckStep returns an error unless process pid runs in that step of the job. A process
// outside escapes the job's limits, and survives the job's end. If Slurm calls the job by
// its SLUID, any such job will do: slurmstepd, which alone puts processes there, also told
// the number. proc is the path of a /proc.
func CheckStep(proc string, pid int, job, step uint32) error {
	text, err := os.ReadFile(filepath.Join(proc, strconv.Itoa(pid), "cgroup"))
	if err == nil {
		err = checkLines(string(text), job, step)
	}
	if err != nil {
		return fmt.Errorf("this process is not in the cgroup of step %d of job %d: %w", step, job, err)
	}
	return nil
}

// checkLines reads /proc/PID/cgroup, which has a line for each controller in version 1.
// Slurm uses only some controllers; for all of these, the process must be in its step.
func checkLines(text string, job, step uint32) error {
	found := false
	for line := range strings.Lines(text) {
		path := pathOf(strings.TrimSuffix(line, "\n"))
		if !slurmsPattern.MatchString(path) {
			continue
		}
		at, ok := parseStep(strings.TrimSuffix(line, "\n"))
		if id, numbered := at.Job.ID(); !ok || numbered && id != job || at.StepID != step {
			return fmt.Errorf("it is in %s", path)
		}
		found = true
	}
	if !found {
		return errors.New("it is in none of Slurm's; ProctrackType in slurm.conf must be proctrack/cgroup")
	}
	return nil
}
