package ledger

import (
	"time"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/journal"
)

// A Request is for the tags of one run of a job.
type Request struct {
	Reservation fabric.Reservation // without Grants and Collectives
	Nodes       []string           // of the job, all of which will have to confirm
	Wants       []Want
}

// A Want is how many tags a job wants of a pool.
type Want struct {
	Pool  fabric.Pool
	Count int
	Why   string // if Count is 0: why the job wants none, for its owner to read
}

// Options are the site's.
type Options struct {
	// Cooling is the time from the last confirmation to the next use of a tag.
	Cooling time.Duration
	// EmptyIfExhausted gives a job no VNIs, and says why, when a pool has too few. VFs need their VLAN or P_Key.
	EmptyIfExhausted bool
}

// A Confirmation is a node's word that it has undone what it did for a run of a job, has
// read the hardware back, and will do no more for it.
type Confirmation struct {
	Job  journal.ID
	Node string
}

// A Boot is the id of the boot in which a node has last said something, as seen after the end of
// a run of a job; see [Ledger.Rebooted].
type Boot struct {
	Job   journal.ID
	Node  string
	ID    string
	Holds bool // the node says that it may have tags of the run
}
