package slurm

import (
	"context"
	"fmt"
	"strings"
)

const (
	// givingIndex is in slurmctld's refusal to change a job while slurmdbd gives it its number in the database. slurmctld has
	// tried for five seconds then (_slurm_rpc_update_job, ESLURM_JOB_SETTING_DB_INX).
	givingIndex = "the DB index is being set"

	// indexTries bounds how often slurmctld is asked then: for about a minute.
	indexTries = 10
)

// updateJob changes the record of a job. It waits for a database that is slow.
func updateJob(ctx context.Context, c Client, name string, changes ...string) (err error) {
	for range indexTries {
		err = c.control(ctx, append([]string{"update", "jobid=" + name}, changes...)...)
		if err == nil || !strings.Contains(err.Error(), givingIndex) {
			return err
		}
	}
	return fmt.Errorf("%w; slurmdbd or its database is slow: see slurmdbd's log", err)
}
