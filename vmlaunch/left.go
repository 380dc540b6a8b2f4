package vmlaunch

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/journal"
)

// Left says, as an error, what of a job's VMs is on the node; nil for nothing, except
// perhaps files. VFs in quarantine count: they may still have the job's tags.
func Left(cfg config.Config, node string, id journal.ID) error { return openStore(cfg, node).left(id) }

func (s store) left(id journal.ID) error {
	state, err := journal.Read(s.state, id)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, r := range state.Held {
		if !slices.Contains(fileRecords, r.Kind) {
			return fmt.Errorf("job %s still has %s %s", id, r.Kind, r.Name)
		}
	}
	pool, err := s.vfs()
	if err != nil {
		return err
	}
	return pool.Left(id)
}
