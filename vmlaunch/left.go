package vmlaunch

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/journal"
)

// Left says, as an error, what of a job's VMs is on the node, of all runs of the job; nil for
// nothing, except perhaps files. VFs in quarantine count: they may still have the job's tags.
//
// The run does not matter. Journals of VMs have the restart count that the plugin knows, which
// users can write in Slurm 22.05, and those of tags have slurmctld's.
func Left(cfg config.Config, node string, job uint32) error { return openStore(cfg, node).left(job) }

func (s store) left(job uint32) error {
	ids, err := journal.List(s.state)
	if err != nil {
		return err
	}
	for _, id := range ids {
		if id.Job != job {
			continue
		}
		if err := s.leftOf(id); err != nil {
			return err
		}
	}
	pool, err := s.vfs()
	if err != nil {
		return err
	}
	return pool.Left(job)
}

func (s store) leftOf(id journal.ID) error {
	state, err := journal.Read(s.state, id)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, r := range state.Held {
		if !slices.Contains(fileRecords, r.Kind) {
			return fmt.Errorf("job %s still has %s %s", id, r.Kind, r.Name)
		}
	}
	return nil
}
