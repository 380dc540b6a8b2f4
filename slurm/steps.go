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

// A StepJob is a running job that has a step with the wanted name.
type StepJob struct {
	Name    string // as users write it: 4217, or 4217_3 for a task of an array
	ID      uint32
	Restart uint32
	User    string
	Nodes   int
	Started time.Time // when the step started
}

// Which selects jobs: the named ones or, without names, the caller's or everybody's.
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

// The separator is a character that no user, job or step id contains. A step can have any
// name, so its name comes last.
const (
	stepFields    = "jobid:.20|,stepid:.128|,username:.128|,starttime:.32|,stepname:256"
	stepJobFields = "jobid:.20|,restartcnt:.12|,numnodes:.12|,state:.32"
)

// StepJobs returns the running jobs that have a step called step. A job that was named
// but has no such step is not an error.
func (c Client) StepJobs(ctx context.Context, w Which, step string) ([]StepJob, error) {
	text, err := c.Run(ctx, "squeue", slices.Concat(visible, w.options(), []string{"--steps", "--Format=" + stepFields})...)
	if err != nil {
		return nil, err
	}
	jobs, err := parseSteps(text, step)
	if err != nil || len(jobs) == 0 {
		return nil, err
	}
	return c.complete(ctx, jobs)
}

// RunningJob returns the job with the number in name, without its step: Started is zero.
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

// complete adds the fields that squeue --steps does not give, and omits jobs that have
// ended.
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

// parseSteps returns the steps called name in squeue's list of steps.
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

// parseStepJobs completes jobs with squeue's record of each, in the order of their
// numbers, and drops those that have ended. It skips jobs that were not asked for: squeue
// lists all tasks of an array under the array's number, which its last task has, too.
func parseStepJobs(text string, jobs []StepJob) ([]StepJob, error) {
	var known []StepJob
	for line := range strings.Lines(text) {
		f := fields(line, 4)
		if len(f) != 4 {
			continue
		}
		i := slices.IndexFunc(jobs, func(j StepJob) bool { return decimal(j.ID) == f[0] })
		if i < 0 {
			continue
		}
		restart, err1 := strconv.ParseUint(f[1], 10, 32)
		nodes, err2 := strconv.Atoi(f[2])
		if err1 != nil || err2 != nil {
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

// WhereWas returns a job's number and working directory, from slurmctld or its
// accounting; the directory is "" if neither knows it. job is in the user's form, 4217 or
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
