package node

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/cxi"
	"github.com/slurm-v/slurm-v/fabric/letter"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
)

// A Node is the node on which this process runs.
type Node struct {
	name    string // in Slurm
	root    string // "/"; tests set another directory
	cfg     config.Fabric
	slurm   slurm.Comments
	records records
	pending numbered // a job has ended of which it is not known yet which run
	words   words
}

// Open returns the node called name. The client's commands run as root, who may change
// jobs and nodes.
func Open(cfg config.Config, name string, client slurm.Client) *Node {
	dir := filepath.Join(cfg.StateDir(name), "fabric")
	return &Node{
		name:    name,
		root:    "/",
		cfg:     cfg.Fabric,
		slurm:   slurm.Comments{Client: client},
		records: records{dir: dir, node: name},
		pending: numbered(filepath.Join(dir, "pending")),
		words: words{
			dir: dir, node: name, key: cfg.Fabric.Key, tags: len(cfg.Fabric.Pools()) > 0,
			slurm: slurm.Comments{Client: client},
		},
	}
}

// A Job is a job as Slurm describes it to this node.
type Job struct {
	ID    journal.ID // Up takes the restart count from slurmctld: users can write the plugin's
	Step  uint32     // that has asked for the tags
	UID   uint32     // of the owner
	GID   uint32
	Cores int // of the job on this node
}

// Tags are a job's tags on the node.
type Tags struct {
	Reservation fabric.Reservation // the zero value if the job has none
	Services    []cxi.Placed       // its CXI services here
	Warnings    []string           // for the user
}

// errNoLetter matches the error if a job's record has no reservation.
var errNoLetter = errors.New("no reservation")

// reservation reads the job's reservation from its record, and which run of the job it is.
// If there is none, the error matches errNoLetter.
//
// The run is slurmctld's word. Slurm 22.05 tells a step its restart count only if that is
// the batch step, and else the plugin has what the user has put into SLURM_RESTART_COUNT. A
// journal with such a name would count as that of a run that has ended.
func (n *Node) reservation(ctx context.Context, job Job) (journal.ID, fabric.Reservation, error) {
	if len(n.cfg.Pools()) == 0 {
		return job.ID, fabric.Reservation{}, fmt.Errorf("job %d has %w of tags on the fabric: [fabric] of slurmv.toml has no pool", job.ID.Job, errNoLetter)
	}
	s, err := n.words.seal(ctx)
	if err != nil {
		return job.ID, fabric.Reservation{}, err
	}
	noted, err := n.record(ctx, job.ID)
	if err != nil {
		return job.ID, fabric.Reservation{}, err
	}
	job.ID.Restart = noted.Restart
	r, err := s.open(job.ID, noted.AdminComment)
	if err != nil {
		return job.ID, fabric.Reservation{}, err
	}
	return job.ID, r, fits(r, s.cluster, job)
}

// record returns slurmctld's record of a job that may get tags here. slurmctld hears before in which
// boot the node is, and the job must not have ended since: so whoever has seen the node in another
// boot after the job's end knows that the node has rebooted since it had the job's tags.
func (n *Node) record(ctx context.Context, id journal.ID) (slurm.NotedJob, error) {
	if err := n.words.tellIfNew(ctx); err != nil {
		return slurm.NotedJob{}, err
	}
	noted, err := n.slurm.AdminComment(ctx, id.Job)
	if err == nil && slurm.Over(noted.State) {
		err = fmt.Errorf("job %d is %s, and gets no tags on the fabric any more", id.Job, noted.State)
	}
	return noted, err
}

// open reads the letter about one run of a job.
func (s seal) open(id journal.ID, comment string) (r fabric.Reservation, err error) {
	err = letter.Find(s.key, letter.ReservationSubject(s.cluster, id), comment, &r)
	if errors.Is(err, letter.ErrNone) {
		err = fmt.Errorf("job %s has %w of tags on the fabric in its record: either it was submitted without --vm-fabric, or slurm.conf lacks PrologSlurmctld and EpilogSlurmctld, which docs/fabric.md describes (%w)",
			id, errNoLetter, err)
	}
	return r, err
}

// mostComponents is how many components a heterogeneous job has at most (MAX_HET_JOB_COMPS
// in Slurm's slurm_protocol_defs.h). Their numbers follow the leader's.
const mostComponents = 128

// fits refuses a reservation of anybody else. Its seal proves that already, unless somebody
// with the key has sealed it wrong. All components of a heterogeneous job have the
// reservation of its leader.
func fits(r fabric.Reservation, cluster string, job Job) error {
	leads := r.Job.Restart == job.ID.Restart && job.ID.Job-r.Job.Job < mostComponents
	if r.Cluster != cluster || !leads || r.UID != job.UID {
		return fmt.Errorf("the reservation in the record of job %s of user %d in %s is that of job %s of user %d in %s: see slurmctld's log about slurmv fabric reserve",
			job.ID, job.UID, cluster, r.Job, r.UID, r.Cluster)
	}
	return nil
}

// library opens libcxi; nil if the node has neither libcxi nor Slingshot cards.
func (n *Node) library() (*cxi.Library, error) {
	l, err := cxi.Open(n.cfg.VNI.LibCXI)
	if err != nil && !n.hasCards() {
		return nil, nil
	}
	return l, err
}

// hasCards reports whether the driver of Slingshot cards is at work. False proves nothing:
// libcxi may find cards elsewhere.
func (n *Node) hasCards() bool {
	for _, pattern := range []string{"sys/class/cxi/*", "dev/cxi[0-9]*"} {
		if found, _ := filepath.Glob(filepath.Join(n.root, pattern)); len(found) > 0 {
			return true
		}
	}
	return false
}
