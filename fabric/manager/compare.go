package manager

import (
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/journal"
)

// Stale returns the listed sessions of this cluster that belong to none of the live jobs.
// live has to be read after the list, with the jobs whose session is just being made:
// otherwise the session of a job that has just begun would look stale.
func Stale(cluster string, listed []string, live []journal.ID) (stale []string) {
	lives := map[journal.ID]bool{}
	for _, job := range live {
		lives[job] = true
	}
	for _, session := range listed {
		if job, ok := parseSession(cluster, session); ok && !lives[job] {
			stale = append(stale, session)
		}
	}
	return stale
}

// Missing returns the jobs that have a session which is not listed. live has to be read
// before the list, and the jobs that have ended since have to be left out.
func Missing(listed []string, live []fabric.Reservation) (missing []journal.ID) {
	there := map[string]bool{}
	for _, session := range listed {
		there[session] = true
	}
	for _, r := range live {
		if r.Collectives != nil && !there[r.Collectives.Session] {
			missing = append(missing, r.Job)
		}
	}
	return missing
}
