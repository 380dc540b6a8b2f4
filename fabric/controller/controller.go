package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/ledger"
	"github.com/slurm-v/slurm-v/fabric/letter"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
)

// A SubnetManager knows which ports are full members of which P_Keys.
type SubnetManager interface {
	// Join returns when the subnet manager knows that the ports are members. Their VFs may
	// not be on the fabric yet.
	Join(ctx context.Context, pkey fabric.Tag, ports []fabric.GUID) error
	// Leave returns when none of the ports has the P_Key any more.
	Leave(ctx context.Context, pkey fabric.Tag, ports []fabric.GUID) error
}

// A FabricManager reserves multicast addresses of Slingshot, in sessions. Package remote has
// the real one.
type FabricManager interface {
	// Session returns the name of a job's session.
	Session(cluster string, job journal.ID) string
	// Reserve makes the session, or finds it.
	Reserve(ctx context.Context, session string) (*fabric.Collectives, error)
	// Release returns nil if the session does not exist.
	Release(ctx context.Context, session string) error
	// List returns all sessions, of other clusters, too.
	List(ctx context.Context) ([]string, error)
	// Steps returns the names of the job's steps that have multicast addresses in the session.
	Steps(ctx context.Context, session string) ([]string, error)
	// ReleaseStep takes a step's multicast addresses, and leaves the session.
	ReleaseStep(ctx context.Context, session, step string) error
	// Stale returns those of the sessions that are of this cluster and of none of its jobs.
	Stale(cluster string, listed []string, live []journal.ID) []string
	// Missing returns those of the jobs whose session is not listed.
	Missing(listed []string, live []fabric.Reservation) []journal.ID
}

// A Controller works on the ledger of one cluster.
type Controller struct {
	Site     config.Fabric
	Limits   config.Limits // of VMs and VFs, which users can forge in their wish
	Slurm    slurm.Comments
	Subnet   SubnetManager         // nil: nobody needs to hear of P_Keys
	Fabric   FabricManager         // nil: no multicast addresses
	Warn     func(sentence string) // of what does not fail the call
	Cluster  string
	Instance string // of slurmctld; "" if it has not started this process
	Dir      string // of the ledger
	Now      func() time.Time
	Patience time.Duration // how much longer than the cooling time a job waits for its tags
}

// ledgerWait is how long a call waits for others that have the ledger open. They have it for
// milliseconds, and in Reconcile for as long as slurmctld takes to answer.
const ledgerWait = 30 * time.Second

// newController returns the controller of a site, with its OpenSM. The caller fills in Cluster,
// and the managers that are asked by HTTP.
func newController(ctx context.Context, cfg config.Config, warn func(string)) (*Controller, error) {
	c := &Controller{
		Site: cfg.Fabric, Limits: cfg.Limits, Slurm: commentsOf(cfg), Warn: warn,
		Instance: instanceOf("/", os.Getppid()), Dir: cfg.Fabric.State, Now: time.Now, Patience: 5 * time.Second,
	}
	var err error
	if c.Dir == "" {
		c.Dir, err = c.Slurm.StateSaveLocation(ctx)
	}
	if site := c.Site.PKey; len(site.OpenSMCommand) > 0 || site.PartitionsFile != "" {
		c.Subnet = openSM{site: site, warn: c.warn}
	}
	return c, err
}

func commentsOf(cfg config.Config) slurm.Comments {
	return slurm.Comments{Client: slurm.Controller(cfg.Slurm.Bin)}
}

// Path is the ledger's.
func (c *Controller) Path() string { return filepath.Join(c.Dir, "slurm-v-fabric.db") }

// with calls do with the ledger, which no other process has open meanwhile.
func (c *Controller) with(ctx context.Context, do func(*ledger.Ledger) error) (err error) {
	ctx, cancel := context.WithTimeout(ctx, ledgerWait)
	defer cancel()
	l, err := ledger.Open(ctx, c.Path())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.Close()) }()
	return do(l)
}

// key reads the key that seals letters.
func (c *Controller) key() (letter.Key, error) { return letter.Load(c.Site.Key) }

func (c *Controller) options() ledger.Options {
	return ledger.Options{Cooling: c.cooling()}
}

func (c *Controller) cooling() time.Duration { return time.Duration(c.Site.Cooling) * time.Second }

func (c *Controller) warn(format string, args ...any) {
	if c.Warn != nil {
		c.Warn(fmt.Sprintf(format, args...))
	}
}
