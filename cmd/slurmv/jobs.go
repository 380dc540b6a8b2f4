package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmstep"
)

// A vmJob is a running job that has a VM step.
type vmJob struct {
	Name    string // as people know it: 4217, or 4217_3
	ID      uint32
	Restart uint32
	User    string
	Nodes   int
	Started time.Time // the VM step
}

// which selects jobs: those named, or without names all of mine, or everybody's.
type which struct {
	jobs     []string
	everyone bool
}

func (w which) options() []string {
	switch {
	case len(w.jobs) > 0:
		return []string{"--jobs=" + strings.Join(w.jobs, ",")}
	case w.everyone:
		return nil
	}
	return []string{"--me"}
}

// The fields are separated by a character that no user, job or step id has. A
// step may be called anything, so its name comes last.
const (
	stepFields = "jobid:.20|,stepid:.128|,username:.128|,starttime:.32|,stepname:256"
	jobFields  = "jobid:.20|,restartcnt:.12|,numnodes:.12|,state:.32"
)

// findJobs asks Slurm for the running jobs with a VM step. The jobs that are
// named but have none are not an error here.
func findJobs(ctx context.Context, w which) ([]vmJob, error) {
	text, err := ask(ctx, "squeue", append(w.options(), "--steps", "--noheader", "--Format="+stepFields)...)
	if err != nil {
		return nil, err
	}
	jobs, err := parseSteps(text)
	if err != nil || len(jobs) == 0 {
		return nil, err
	}
	return complete(ctx, jobs)
}

// complete asks Slurm for what jobs lack; those that have ended are left out.
func complete(ctx context.Context, jobs []vmJob) ([]vmJob, error) {
	var ids []string
	for _, j := range jobs {
		ids = append(ids, strconv.FormatUint(uint64(j.ID), 10))
	}
	text, err := ask(ctx, "squeue", "--jobs="+strings.Join(ids, ","), "--noheader", "--Format="+jobFields)
	if err != nil {
		return nil, err
	}
	return parseJobs(text, jobs)
}

// parseSteps picks the VM steps from squeue's list of steps.
func parseSteps(text string) ([]vmJob, error) {
	var jobs []vmJob
	for line := range strings.Lines(text) {
		f := fields(line, 5)
		if f == nil || f[4] != vmstep.StepName {
			continue
		}
		id, err1 := strconv.ParseUint(f[0], 10, 32)
		started, err2 := strconv.ParseInt(f[3], 10, 64)
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("squeue lists a step in words that are not understood: %s", strings.TrimSpace(line))
		}
		name, _, _ := strings.Cut(f[1], ".")
		jobs = append(jobs, vmJob{Name: name, ID: uint32(id), User: f[2], Started: time.Unix(started, 0)})
	}
	return jobs, nil
}

// parseJobs completes jobs with what squeue says of each, and drops those that
// are gone by now.
func parseJobs(text string, jobs []vmJob) ([]vmJob, error) {
	var known []vmJob
	for line := range strings.Lines(text) {
		f := fields(line, 4)
		if f == nil {
			continue
		}
		i := slices.IndexFunc(jobs, func(j vmJob) bool { return strconv.FormatUint(uint64(j.ID), 10) == f[0] })
		restart, err1 := strconv.ParseUint(f[1], 10, 32)
		nodes, err2 := strconv.Atoi(f[2])
		if i < 0 || err1 != nil || err2 != nil {
			return nil, fmt.Errorf("squeue lists a job in words that are not understood: %s", strings.TrimSpace(line))
		}
		if slurm.Over(f[3]) {
			continue
		}
		job := jobs[i]
		job.Restart, job.Nodes = uint32(restart), nodes
		known = append(known, job)
	}
	slices.SortFunc(known, func(a, b vmJob) int { return int(int64(a.ID) - int64(b.ID)) })
	return known, nil
}

// fields returns the n fields of a line, or nil for an empty line.
func fields(line string, n int) []string {
	f := strings.SplitN(strings.TrimRight(line, "\n"), "|", n)
	if len(f) != n {
		return nil
	}
	for i := range f {
		f[i] = strings.TrimSpace(f[i])
	}
	return f
}

// findJob returns the one running job with VMs that name means.
func findJob(ctx context.Context, name string) (vmJob, error) {
	jobs, err := findJobs(ctx, which{jobs: []string{name}})
	switch {
	case err != nil:
		return vmJob{}, err
	case len(jobs) == 0:
		return vmJob{}, fmt.Errorf("job %s has no running VMs; slurmv ps -a lists the jobs that have, slurmv logs %s shows what is left of it", name, name)
	case len(jobs) > 1:
		return vmJob{}, fmt.Errorf("job %s is an array, and %d of its tasks have VMs: name one, such as %s", name, len(jobs), jobs[0].Name)
	}
	return jobs[0], nil
}
