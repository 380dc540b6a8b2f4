package plan

import (
	"github.com/slurm-v/slurm-v/config"
)

// Hardware is the part of the node's hardware that a plan depends on.
type Hardware struct {
	Accel    config.Accel
	NUMA     int  // node of the job's cores; -1 if they have none or several
	HugePage uint // KiB of the pages that the VMs' memory is made of; 0 is ordinary ones

	CPUs     []CPU  // that the job has to itself
	Unpinned string // why that is not known, and VMs are not pinned
	Memory   []int  // NUMA nodes of whose memory it may have some
}
