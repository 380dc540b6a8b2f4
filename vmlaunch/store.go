package vmlaunch

import (
	"math"
	"os"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/images/cache"
	"github.com/slurm-v/slurm-v/images/template"
	"github.com/slurm-v/slurm-v/ivshmem"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vfpool"
)

// A store gives access to everything that a node's jobs hold: journals and files, copies of
// images, templates, shared memory, virtual functions.
type store struct {
	node  string // as Slurm calls it
	state string // directory of files that survive a reboot
	run   string // directory of files that do not
	sysfs string // where sysfs is mounted

	backend        config.Backend
	novaPatience   time.Duration // how long nova may take to end a VM
	deletePatience time.Duration // how long nova may take to delete a job's servers
	startPatience  time.Duration // how long nova may take to start a VM that the job still awaited at its end

	vfs       func() (*vfpool.Pool, error)
	images    *cache.Cache
	templates *template.Store
	regions   ivshmem.Regions
}

// novaPatience is how long nova may take to end the VMs of an ended job. It leaves time for the kill in the two minutes of an
// epilog's reclaim. A clean has less time: see cleanNovaPatience.
const novaPatience = 45 * time.Second

// startPatience is how long a node looks for VMs that nova may start though their job is over. On a busy machine nova has taken
// 14 seconds to give up a server that it was building. It is less than the 20 seconds that a reclaim at the end of a step has.
const startPatience = 15 * time.Second

// forever is longer than any reclaim.
const forever time.Duration = math.MaxInt64

func openStore(cfg config.Config, node string) store {
	state := cfg.StateDir(node)
	return store{
		node: node, state: state, run: cfg.RunDir(node), sysfs: "/sys", backend: cfg.Backend,
		novaPatience: novaPatience, deletePatience: forever, startPatience: startPatience,
		vfs:       func() (*vfpool.Pool, error) { return vfpool.Open(cfg, node) },
		images:    images.Cache(cfg, node),
		templates: template.Open(state, int64(cfg.Warm.Size)<<20),
		regions:   ivshmem.Open(state, node),
	}
}

// hasJournal reports whether the job has a journal. A launch begins the journal before
// everything else, so whatever names a job without a journal is an orphan.
func (s store) hasJournal(id journal.ID) bool {
	_, err := os.Stat(journal.Dir(s.state, id))
	return err == nil
}
