package vmlaunch

import (
	"os"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/images/cache"
	"github.com/slurm-v/slurm-v/images/template"
	"github.com/slurm-v/slurm-v/ivshmem"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vfpool"
)

// A store is where a node keeps what its jobs hold: journals and files, copies of images,
// templates, shared memory, virtual functions.
type store struct {
	node  string // as Slurm calls it
	state string // directory of what survives a reboot
	run   string // directory of what does not

	vfs       func() (*vfpool.Pool, error)
	images    *cache.Cache
	templates *template.Store
	regions   ivshmem.Regions
}

func openStore(cfg config.Config, node string) store {
	state := cfg.StateDir(node)
	return store{
		node: node, state: state, run: cfg.RunDir(node),
		vfs:       func() (*vfpool.Pool, error) { return vfpool.Open(cfg, node) },
		images:    images.Cache(cfg, node),
		templates: template.Open(state, int64(cfg.Warm.Size)<<20),
		regions:   ivshmem.Open(state, node),
	}
}

// hasJournal reports whether the job has one. A launch begins the journal before all else,
// so nothing on the node is that of a job without a journal.
func (s store) hasJournal(id journal.ID) bool {
	_, err := os.Stat(journal.Dir(s.state, id))
	return err == nil
}
