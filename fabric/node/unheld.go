package node

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/cxi"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
)

// ErrUndecided matches the error if slurmctld's record does not say yet which run of a job
// has ended, or that all of a heterogeneous job has. [Node.Linger] and [Node.Clean] ask again.
var ErrUndecided = errors.New("it is confirmed later")

// A run without a journal holds nothing on the node, so the node confirms it, whether or not
// its reservation has ever come here: slurmctld may not have taken the controller's letter.
// Only runs that are over are confirmed: one that is yet to begin may get its tags on this node.
//
// An unheld is such a run.
type unheld struct {
	id journal.ID
	of journal.ID // by which the controller knows the reservation

	reservation *fabric.Reservation // nil if the node has not read it
}

// endWithoutJournal ends the run of a job in its epilog, if that run has no journal here. Until it
// is known which run it was, a file says that this is to be done.
func (n *Node) endWithoutJournal(ctx context.Context, job uint32, left Left) error {
	if len(n.cfg.Pools()) == 0 {
		return nil
	}
	if err := n.pending.set(job); err != nil {
		return err
	}
	noted, err := n.slurm.AdminComment(ctx, job)
	if err != nil {
		return n.noRun(job, err)
	}
	run, found, err := n.lettered(ctx, noted)
	if err != nil {
		return n.noRun(job, err)
	}
	if found {
		return n.confirm(ctx, job, []unheld{run}, true, left)
	}
	runs, decided := overBy(noted)
	return n.confirm(ctx, job, runs, decided, left)
}

// confirmLate ends a job of whose epilog the file in pending is left. If slurmctld has
// forgotten the job, it is taken for one that was never requeued.
func (n *Node) confirmLate(ctx context.Context, job uint32, left Left) error {
	noted, err := n.slurm.AdminComment(ctx, job)
	if errors.Is(err, slurm.ErrUnknownJob) {
		first := journal.ID{Job: job}
		return n.confirm(ctx, job, []unheld{{id: first, of: first}}, true, left)
	}
	if err != nil {
		return n.noRun(job, err)
	}
	runs, decided := overBy(noted)
	return n.confirm(ctx, job, runs, decided, left)
}

func (n *Node) noRun(job uint32, err error) error {
	return fmt.Errorf("node %s: find the run of job %d that has ended: %w", n.name, job, err)
}

// lettered returns the run that has ended, if the job's record has its reservation. In the
// epilog that is the last run whose PrologSlurmctld has come so far.
func (n *Node) lettered(ctx context.Context, noted slurm.NotedJob) (run unheld, found bool, err error) {
	s, err := n.words.seal(ctx)
	if err != nil {
		return run, false, err
	}
	var r fabric.Reservation
	run.id = journal.ID{Job: noted.Job, Restart: noted.Restart}
	r, err = s.open(run.id, noted.AdminComment)
	if errors.Is(err, errNoLetter) {
		return run, false, nil
	}
	run.of, run.reservation = r.Job, &r
	return run, err == nil, err
}

// overBy returns the runs of which the job's record says that they are over: the last two
// suffice, because each epilog ends one. decided reports whether these are all. Slurm counts
// a restart when the job is requeued, which is before the epilog of the run before. So while
// the job completes, nobody knows whether the run of the record's number has begun.
func overBy(noted slurm.NotedJob) (runs []unheld, decided bool) {
	add := func(restart uint32) {
		run := unheld{id: journal.ID{Job: noted.Job, Restart: restart}}
		run.of = run.id
		if noted.HetJob != 0 {
			run.of.Job = noted.HetJob
		}
		runs = append(runs, run)
	}
	if noted.Restart > 0 {
		add(noted.Restart - 1)
	}
	if slurm.Ended(noted.State) {
		add(noted.Restart)
	}
	return runs, slurm.Ended(noted.State) || slurm.Lives(noted.State)
}

// confirm ends runs that have no journal. decided says that the job has no others.
func (n *Node) confirm(ctx context.Context, job uint32, runs []unheld, decided bool, left Left) (err error) {
	strays := sync.OnceValues(n.strays)
	for _, run := range runs {
		err = errors.Join(err, n.confirmOne(ctx, run, strays, left))
	}
	switch {
	case err != nil:
		return fmt.Errorf("node %s: confirm the end of job %d: %w", n.name, job, err)
	case !decided:
		return fmt.Errorf("node %s: confirm the end of job %d: the job is still completing, and slurmctld's record does not say yet which of its runs has ended: %w",
			n.name, job, ErrUndecided)
	}
	return n.pending.clear(job)
}

// confirmOne leaves a run alone that has a journal: that one's end confirms it, or has done so. strays
// are those of [Node.strays], which opens the cards.
func (n *Node) confirmOne(ctx context.Context, run unheld, strays func() ([]cxi.Placed, error), left Left) error {
	if confirmed, err := n.words.confirmed(run.of); err != nil || confirmed {
		return err
	}
	if n.records.holds(run.id) {
		return nil
	}
	if run.mayHaveServices() {
		services, err := strays()
		if err := errors.Join(err, run.noneOf(services)); err != nil {
			return err
		}
	}
	j, err := n.records.beginFresh(run.id, run.of)
	switch {
	case errors.Is(err, fs.ErrExist), errors.Is(err, journal.ErrLocked):
		return nil
	case err != nil:
		return err
	}
	return n.end(ctx, j, 0, left)
}

// strays returns the CXI services with a VNI of the pools that belong to no job that the node knows. They may be
// of runs whose journals were lost.
func (n *Node) strays() ([]cxi.Placed, error) {
	before, err := n.records.jobs()
	if err != nil {
		return nil, err
	}
	services, err := n.candidates(false)
	if err != nil {
		return nil, err
	}
	after, err := n.records.jobs()
	if err != nil {
		return nil, err
	}
	return cxi.Stray(services, poolsOf(n.cfg, false), append(before, after...)), nil
}

// noneOf returns an error if a stray may be of the run: of one whose reservation is not known, any.
func (run unheld) noneOf(strays []cxi.Placed) error {
	for _, s := range strays {
		if run.reservation == nil || cxi.JobOf(*run.reservation, 0).Owns(s.Service) {
			return fmt.Errorf("the CXI service %d on %s has a VNI of the pools and belongs to no job that is known here: remove it by slurmv fabric clean", s.ID, s.Card)
		}
	}
	return nil
}

// mayHaveServices is false of a run that is known to have got no VNI.
func (run unheld) mayHaveServices() bool {
	return run.reservation == nil || len(run.reservation.Tags(fabric.VNI)) > 0
}
