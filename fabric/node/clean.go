package node

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/cxi"
	"github.com/slurm-v/slurm-v/journal"
)

// Running returns the runs of jobs that have not given up the node yet.
type Running func(ctx context.Context) (map[journal.ID]bool, error)

// Cleaning says what Clean does.
type Cleaning struct {
	All      bool          // services with VNIs outside of the pools, too
	DryRun   bool          // only say what would be done
	Patience time.Duration // how long to wait for services that are in use
}

// Clean ends all jobs on the node that do not run, removes CXI services with a VNI of the
// pools that belong to no running job, and repeats confirmations that slurmctld has not
// got. It returns what it has done, a phrase each. If one thing fails, it still does the
// others. It calls running at most once, after it has looked at the services: a job that
// begins in between is then among the running ones. It confirms the runs for which the controller
// asks, if they hold nothing.
func (n *Node) Clean(ctx context.Context, c Cleaning, running Running, left Left) (done []string, err error) {
	f, err := n.find(c)
	w := work{node: n, cleaning: c, left: left, failed: err}
	lives := sync.OnceValues(func() (map[journal.ID]bool, error) { return running(ctx) })
	if !f.nothing() {
		live, err := lives()
		if err != nil {
			return nil, errors.Join(w.failed, err)
		}
		w.endJobs(ctx, f.runs, live)
		w.findRuns(ctx, f.pending, live)
		w.removeStrays(ctx, f)
		w.removeLocks(f.locks, live)
	}
	if !c.DryRun {
		w.answer(ctx, w.tell(ctx), lives)
	}
	return w.done, w.failed
}

// tell tells slurmctld, and the plugin, what they have to know of this node. It returns the runs for
// which the controller asks.
func (w *work) tell(ctx context.Context) (asked []journal.ID) {
	n := w.node
	asked, err := n.words.tellIfLost(ctx)
	w.failed = errors.Join(w.failed, n.records.noteNobody(ctx, len(n.cfg.Pools()) > 0, n.slurm), err, n.words.tellIfHeld(ctx))
	return asked
}

// answer confirms runs that have ended for the controller, and of which nothing is known here: their
// epilogs never came, or slurmctld has lost the word of these. A run with a journal was ended before,
// or cannot be. At last the node's word is told again, without what is asked.
func (w *work) answer(ctx context.Context, asked []journal.ID, lives func() (map[journal.ID]bool, error)) {
	if len(asked) == 0 {
		return
	}
	live, err := lives()
	if err != nil {
		w.failed = errors.Join(w.failed, err)
		return
	}
	strays := sync.OnceValues(w.node.strays)
	for _, id := range asked {
		if runs(live, id.Job) || w.node.records.holds(id) {
			continue
		}
		w.do("confirmed the end of job "+id.String(), func() error { return w.node.confirmOne(ctx, unheld{id: id, of: id}, strays, w.left) })
	}
	w.failed = errors.Join(w.failed, w.node.words.tellNow(ctx))
}

// found is what is on the node of jobs, whether they run or not.
type found struct {
	runs     []journal.ID
	pending  []uint32
	locks    []uint32
	jobs     []cxi.Job    // that have services here, by their journals
	services []cxi.Placed // that may be strays
}

func (f found) nothing() bool {
	return len(f.runs)+len(f.pending)+len(f.locks)+len(f.services) == 0
}

// find goes on after an error: a card that cannot be read must not keep jobs from their end.
func (n *Node) find(c Cleaning) (f found, err error) {
	var errs [5]error
	f.jobs, errs[0] = n.records.jobs()
	f.services, errs[1] = n.candidates(c.All)
	f.runs, errs[2] = journal.List(n.records.dir)
	f.pending, errs[3] = n.pending.list()
	f.locks, errs[4] = n.records.locks().list()
	for _, e := range errs {
		if e != nil {
			err = errors.Join(err, fmt.Errorf("node %s: %w", n.name, e))
		}
	}
	return f, err
}

// candidates returns the services that would be strays if no job ran, as far as the cards
// can be read. A site without VNIs has none, and needs no libcxi.
func (n *Node) candidates(all bool) ([]cxi.Placed, error) {
	if !n.cfg.HasPool(config.TagVNI) && !all {
		return nil, nil
	}
	lib, err := n.library()
	if err != nil || lib == nil {
		return nil, err
	}
	defer lib.Close()
	services, err := lib.All()
	return cxi.Stray(services, poolsOf(n.cfg, all), nil), err
}

// poolsOf are those whose VNIs are only for jobs; with all, the VNIs of everybody.
func poolsOf(site config.Fabric, all bool) []fabric.Pool {
	if all {
		return []fabric.Pool{{Kind: fabric.VNI, Tags: []fabric.Range{{First: 2, Last: 65535}}}}
	}
	return fabric.Pools(site)
}

// A work is one call of Clean.
type work struct {
	node     *Node
	cleaning Cleaning
	left     Left
	done     []string
	failed   error
}

// do does one thing, or says that it would.
func (w *work) do(what string, f func() error) {
	if w.cleaning.DryRun {
		w.done = append(w.done, "would have "+what)
		return
	}
	switch err := f(); {
	case errors.Is(err, ErrUndecided): // and so the next call does it
	case err != nil:
		w.failed = errors.Join(w.failed, err)
	default:
		w.done = append(w.done, what)
	}
}

// endJobs ends the jobs that do not run. A job that runs keeps its journal, even if that is
// from before the last boot: what a confirmation says must hold until the job ends.
func (w *work) endJobs(ctx context.Context, runs []journal.ID, live map[journal.ID]bool) {
	for _, id := range runs {
		if live[id] {
			continue
		}
		w.do("released the tags of job "+id.String(), func() error {
			return w.node.Down(ctx, id, w.cleaning.Patience, w.left)
		})
	}
}

// findRuns ends jobs of which the epilog could not find out the run.
func (w *work) findRuns(ctx context.Context, jobs []uint32, live map[journal.ID]bool) {
	for _, job := range jobs {
		if runs(live, job) {
			continue
		}
		w.do(fmt.Sprintf("confirmed the end of job %d", job), func() error { return w.node.confirmLate(ctx, job, w.left) })
	}
}

func runs(live map[journal.ID]bool, job uint32) bool {
	for id := range live {
		if id.Job == job {
			return true
		}
	}
	return false
}

// removeStrays removes services that no journal names, neither now nor when the services
// were listed: those of jobs that have just been ended are gone.
func (w *work) removeStrays(ctx context.Context, f found) {
	jobs, err := w.node.records.jobs()
	if err != nil {
		w.failed = errors.Join(w.failed, err)
		return
	}
	for _, s := range cxi.Stray(f.services, poolsOf(w.node.cfg, w.cleaning.All), append(jobs, f.jobs...)) {
		w.do(fmt.Sprintf("removed the CXI service %d on %s", s.ID, s.Card), func() error { return w.node.remove(ctx, s, w.cleaning.Patience) })
	}
}

// removeLocks removes what the plugin leaves of jobs that have had no tags: nobody ends these.
func (w *work) removeLocks(jobs []uint32, live map[journal.ID]bool) {
	for _, job := range jobs {
		if w.cleaning.DryRun || runs(live, job) {
			continue
		}
		w.failed = errors.Join(w.failed, w.node.records.locks().clear(job))
	}
}

func (n *Node) remove(ctx context.Context, s cxi.Placed, patience time.Duration) error {
	lib, err := cxi.Open(n.cfg.VNI.LibCXI)
	if err != nil {
		return err
	}
	defer lib.Close()
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	return lib.Clean(ctx, []cxi.Placed{s})
}
