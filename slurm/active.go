package slurm

import (
	"context"
	"slices"
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
