package slurm

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// ActiveRuns returns the runs of all jobs that occupy nodes.
func (c Client) ActiveRuns(ctx context.Context) ([]RunID, error) {
	args := slices.Concat(visible, []string{"--Format=jobid:.20,restartcnt:.20", "--states=" + holdingStates})
	text, err := c.Run(ctx, "squeue", args...)
	if err != nil {
		return nil, err
	}
	return parseRuns(text)
}

// Notify shows the owner of a job a text: on the terminal of srun or salloc, if they wait.
func (c Client) Notify(ctx context.Context, job uint32, text string) error {
	return c.control(ctx, "notify", decimal(job), text)
}

// Steps are the steps of jobs: for each job's own number the names, such as 0 and batch.
type Steps map[uint32][]string

// ActiveSteps returns the steps that slurmctld has, of all jobs. They have not ended on all their
// nodes. Where a job manages its steps itself (salloc --stepmgr), and does not answer squeue, it
// seems to have none.
func ActiveSteps(ctx context.Context, c Client) (Steps, error) {
	text, err := c.Run(ctx, "squeue", slices.Concat(visible, []string{"--steps", "--Format=jobid:.20|,stepid:.128"})...)
	if err != nil {
		return nil, err
	}
	return parseActiveSteps(text)
}

// parseActiveSteps reads lines such as "8|7_1.0". A step of several components of a heterogeneous
// job is called 7.0+1 in the second one.
func parseActiveSteps(text string) (Steps, error) {
	all := Steps{}
	for line := range strings.Lines(text) {
		f := fields(line, 2)
		job, err := strconv.ParseUint(f[0], 10, 32)
		if err != nil || len(f) != 2 || !strings.Contains(f[1], ".") {
			return nil, fmt.Errorf("squeue lists a step in words that are not understood: %s", strings.TrimSpace(line))
		}
		name, _, _ := strings.Cut(f[1][strings.LastIndex(f[1], ".")+1:], "+")
		all[uint32(job)] = append(all[uint32(job)], name)
	}
	return all, nil
}
