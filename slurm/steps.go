package slurm

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A StepJob is a running job with a step of some name.
type StepJob struct {
	Name    string // as people know the job: 4217, or 4217_3 for a task of an array
	ID      uint32
	Restart uint32
	User    string
	Nodes   int
	Started time.Time // the step
}

// Which selects jobs: those named, or without names all of mine, or everybody's.
type Which struct {
	Jobs     []string
	Everyone bool
}

func (w Which) options() []string {
	switch {
	case len(w.Jobs) > 0:
		return []string{"--jobs=" + strings.Join(w.Jobs, ",")}
	case w.Everyone:
		return nil
	}
	return []string{"--me"}
}

// The fields are separated by a character that no user, job or step id has. A
// step may be called anything, so its name comes last.
const (
	stepFields    = "jobid:.20|,stepid:.128|,username:.128|,starttime:.32|,stepname:256"
	stepJobFields = "jobid:.20|,restartcnt:.12|,numnodes:.12|,state:.32"
)

// StepJobs asks for the running jobs with a step of that name. The jobs that are named but
// have none are not an error.
func (c Client) StepJobs(ctx context.Context, w Which, step string) ([]StepJob, error) {
	text, err := c.Run(ctx, "squeue", append(w.options(), "--steps", "--noheader", "--Format="+stepFields)...)
	if err != nil {
		return nil, err
	}
	jobs, err := parseSteps(text, step)
	if err != nil || len(jobs) == 0 {
		return nil, err
	}
	return c.complete(ctx, jobs)
}

// RunningJob asks for a job whose step is not asked for, by a text that is its number.
// Started is zero.
func (c Client) RunningJob(ctx context.Context, name string) (StepJob, error) {
	id, err := strconv.ParseUint(name, 10, 32)
	if err != nil {
		return StepJob{}, fmt.Errorf("%s=%q is not a job id", EnvJobID, name)
	}
	jobs, err := c.complete(ctx, []StepJob{{Name: name, ID: uint32(id)}})
	switch {
	case err != nil:
		return StepJob{}, err
	case len(jobs) == 0:
		return StepJob{}, fmt.Errorf("job %s is ending", name)
	}
	return jobs[0], nil
}

// complete asks for what jobs lack; those that have ended are left out.
func (c Client) complete(ctx context.Context, jobs []StepJob) ([]StepJob, error) {
	var ids []string
	for _, j := range jobs {
		ids = append(ids, decimal(j.ID))
	}
	text, err := c.Run(ctx, "squeue", "--jobs="+strings.Join(ids, ","), "--noheader", "--Format="+stepJobFields)
	if err != nil {
		return nil, err
	}
	return parseStepJobs(text, jobs)
}

// parseSteps picks the steps of that name from squeue's list of steps.
func parseSteps(text, name string) ([]StepJob, error) {
	var jobs []StepJob
	for line := range strings.Lines(text) {
		f := fields(line, 5)
		if len(f) != 5 || f[4] != name {
			continue
		}
		id, err1 := strconv.ParseUint(f[0], 10, 32)
		started, err2 := strconv.ParseInt(f[3], 10, 64)
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("squeue lists a step in words that are not understood: %s", strings.TrimSpace(line))
		}
		job, _, _ := strings.Cut(f[1], ".")
		jobs = append(jobs, StepJob{Name: job, ID: uint32(id), User: f[2], Started: time.Unix(started, 0)})
	}
	return jobs, nil
}

// parseStepJobs completes jobs with what squeue says of each, in the order of their
// numbers, and drops those that are gone by now.
func parseStepJobs(text string, jobs []StepJob) ([]StepJob, error) {
	var known []StepJob
	for line := range strings.Lines(text) {
		f := fields(line, 4)
		if len(f) != 4 {
			continue
		}
		i := slices.IndexFunc(jobs, func(j StepJob) bool { return decimal(j.ID) == f[0] })
		restart, err1 := strconv.ParseUint(f[1], 10, 32)
		nodes, err2 := strconv.Atoi(f[2])
		if i < 0 || err1 != nil || err2 != nil {
			return nil, fmt.Errorf("squeue lists a job in words that are not understood: %s", strings.TrimSpace(line))
		}
		if Over(f[3]) {
			continue
		}
		job := jobs[i]
		job.Restart, job.Nodes = uint32(restart), nodes
		known = append(known, job)
	}
	slices.SortFunc(known, func(a, b StepJob) int { return int(int64(a.ID) - int64(b.ID)) })
	return known, nil
}

// WhereWas returns a job's number and working directory, from Slurm's memory or its
// accounting; the directory is "" if neither knows it. job is as people write it, 4217 or
// 4217_3.
func (c Client) WhereWas(ctx context.Context, job string) (id, workDir string, err error) {
	text, err := c.Run(ctx, "scontrol", "--oneliner", "show", "job", job)
	if err == nil {
		id, workDir = describedJob(text)
		return id, workDir, nil
	}
	text, sacctErr := c.Run(ctx, "sacct", "--jobs="+job, "--allocations", "--noheader", "--parsable2", "--format=jobidraw,workdir")
	if sacctErr == nil {
		if id, workDir, found := strings.Cut(strings.TrimSpace(firstLine(text)), "|"); found {
			return id, workDir, nil
		}
	}
	if strings.Contains(job, "_") || !errors.Is(err, ErrUnknownJob) {
		return "", "", errors.Join(err, sacctErr)
	}
	return job, "", nil
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

var (
	jobIDField   = regexp.MustCompile(`\bJobId=([0-9]+)`)
	workDirField = regexp.MustCompile(` WorkDir=(.*?)(?: [A-Z][A-Za-z]*=|$)`)
)

// describedJob reads a line of scontrol show job.
func describedJob(text string) (id, workDir string) {
	line := firstLine(text)
	if found := jobIDField.FindStringSubmatch(line); found != nil {
		id = found[1]
	}
	if found := workDirField.FindStringSubmatch(line); found != nil {
		workDir = found[1]
	}
	return id, workDir
}
