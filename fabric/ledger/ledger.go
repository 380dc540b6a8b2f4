package ledger

import (
	"errors"
	"time"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/journal"
)

// Reserve gives a run of a job its tags, round robin from the last one given of each pool,
// and all or none: a Want of 0 is an empty grant with its Why. A repeated call returns what
// the first one gave, and adds nodes that the first did not name.
//
// The error is an [*ExhaustedError] if a pool has too few free tags, a [*LimitError] if a
// job wants more than any can have, or [ErrEnded] after [Ledger.End]: a run has its tags
// once.
func (l *Ledger) Reserve(q Request, o Options, now time.Time) (r fabric.Reservation, err error) {
	err = l.update("reserve tags for job "+q.Reservation.Job.String(), func(m machine) error {
		r, err = m.reserve(q, o, now)
		return err
	})
	return r, err
}

// Tell says that the job's nodes are about to hear of its tags. Until then they have nothing to
// confirm, and the job's end waits for none of them. The error is [ErrEnded] after [Ledger.End]: then
// the nodes must not hear of the tags any more.
func (l *Ledger) Tell(job journal.ID) error {
	return l.update("tell the nodes of job "+job.String(), func(m machine) error { return m.tell(job) })
}

// SetCollectives records the job's multicast addresses at the fabric manager, before the
// job can use them. nil says that the fabric manager has none of them any more: until then
// the ledger keeps the entry of an ended job, without its tags. An unknown job is an error,
// unless c is nil.
func (l *Ledger) SetCollectives(job journal.ID, c *fabric.Collectives) error {
	return l.update("record the multicast addresses of job "+job.String(), func(m machine) error {
		return m.setCollectives(job, c)
	})
}

// End says that the job has ended: its nodes have to confirm from now on, and with them those that
// are named here, which may have joined it while it ran. An unknown job, or a job that has ended
// already, is no error.
func (l *Ledger) End(job journal.ID, now time.Time, nodes ...string) error {
	return l.update("end job "+job.String(), func(m machine) error { return m.end(job, now, nodes...) })
}

// Confirm records confirmations of nodes. Each was read after its run had ended in the ledger; those
// of runs that have not are ignored, as is what the ledger does not wait for. A node may have said
// before the run began that it has nothing of it: slurmctld may have lost its state, and given the
// number twice. No confirmation is lost by this: it stays in the node's statement.
func (l *Ledger) Confirm(c []Confirmation, now time.Time) error {
	return l.update("record confirmations of nodes", func(m machine) error { return m.confirm(c, now) })
}

// Rebooted confirms for nodes that have booted since the end of a run. Each boot was read after
// its run had ended for slurmctld and in the ledger; those of runs that have not are ignored.
//
// A node says in which boot it is before it makes a tag in that boot, and makes none for a job
// that has ended. So if it is seen in one boot after the end of a run, and then in another one, it
// has booted since it last had the run's tags. Clocks have no part in this.
//
// A boot between the begin and the end of a job proves nothing: Slurm lets a job live on
// whose node has rebooted without one of its steps (_purge_missing_jobs in slurmctld's
// job_mgr.c), and its next step makes the tags on that node again. Such a node confirms
// like any other, by its epilog.
func (l *Ledger) Rebooted(seen []Boot, now time.Time) error {
	return l.update("record boots of nodes", func(m machine) error { return m.rebooted(seen, now) })
}

// ConfirmManager records that the subnet manager has no member of the job's P_Keys any more.
// It counts only after [Ledger.End]: until then the job may become a member again.
func (l *Ledger) ConfirmManager(job journal.ID, now time.Time) error {
	return l.update("record the subnet manager's confirmation for job "+job.String(), func(m machine) error {
		return m.confirmManager(job, now)
	})
}

// AskedManager records that the subnet manager was asked about an ended job, and that the
// first gone ports of the job have none of its P_Keys any more. So many ports need not be
// asked about again after a crash or a time-out, and no job is asked about before all others
// again and again.
func (l *Ledger) AskedManager(job journal.ID, gone int, now time.Time) error {
	return l.update("record what the subnet manager has confirmed for job "+job.String(), func(m machine) error {
		return m.askedManager(job, gone, now)
	})
}

// Force gives up the tags of an ended job without any confirmation, on an administrator's
// word. They cool, as always. An unknown job is an error. The error is [ErrRunning] if
// the job has not ended.
func (l *Ledger) Force(job journal.ID, now time.Time) error {
	return l.update("release the tags of job "+job.String()+" by force", func(m machine) error {
		return m.force(job, now)
	})
}

// Adopt records a reservation that was found in the record of a job that still has it, and
// adds nodes to one that the ledger has. A ledger that was restored from an old file lacks
// such jobs. Before the next Reserve, a caller
//
//  1. opens the ledger, so that no other process ends jobs meanwhile,
//  2. reads slurmctld's jobs, and ends and confirms those in the ledger that are over: else
//     the owners of long ago are in the way,
//  3. adopts all jobs that run or are completing, and those that a node says it still has;
//     the last ones it ends at once,
//  4. calls [Ledger.Withhold] for what no job's record and no node tells.
//
// A tag that another job has, too, is quarantined with both jobs. Both are recorded, and the
// error has a [*ConflictError] for each such tag.
func (l *Ledger) Adopt(r fabric.Reservation, nodes []string, began, now time.Time) error {
	return l.update("adopt job "+r.Job.String(), func(m machine) error { return m.adopt(r, nodes, began, now) })
}

// Withhold puts into quarantine what an old copy of the ledger cannot know: all tags that were not
// free for the ledger that it replaces, but for those of jobs that run. Their job is [Unknown]. It
// returns how many they are; none if the ledger is no old copy.
//
// After a power cut, the file that knows the tags may lack the last seconds before it.
func (l *Ledger) Withhold(now time.Time) (n int, err error) {
	err = l.update("withhold tags of unknown jobs", func(m machine) error {
		old, err := m.isOld()
		if err != nil || !old {
			return err
		}
		taken, err := l.taken()
		if err != nil {
			return err
		}
		n, err = m.withhold(taken, now)
		return errors.Join(err, m.setOld(false))
	})
	return n, err
}

// Entries returns the jobs in the ledger, by number and restart.
func (l *Ledger) Entries() (e []Entry, err error) {
	err = l.view("list jobs", func(m machine) error {
		e, err = m.entries()
		return err
	})
	return e, err
}

// Entry returns the runs of a job that are in the ledger.
func (l *Ledger) Entry(job uint32) (e []Entry, err error) {
	err = l.view("look up a job", func(m machine) error {
		e, err = m.entriesOf(job)
		return err
	})
	return e, err
}

// Pools returns the state of pools at a time, for a cooling time.
func (l *Ledger) Pools(pools []fabric.Pool, cooling time.Duration, now time.Time) (s []PoolState, err error) {
	err = l.view("list pools", func(m machine) error {
		s, err = m.pools(pools, cooling, now)
		return err
	})
	return s, err
}

// Instance returns which process of slurmctld the ledger was last checked against; "" at
// first, and if the file is an old copy.
func (l *Ledger) Instance() (instance string, err error) {
	err = l.view("read the controller's instance", func(m machine) error {
		current, err := l.current(m.facts)
		if current && err == nil {
			instance, err = m.instance()
		}
		return err
	})
	return instance, err
}

// SetInstance records what [Ledger.Instance] returns.
func (l *Ledger) SetInstance(instance string) error {
	return l.update("record the controller's instance", func(m machine) error { return m.setInstance(instance) })
}

// Check reads everything, and returns an error if the file is damaged or if the records of
// jobs and tags contradict each other. It takes milliseconds for thousands of jobs.
func (l *Ledger) Check() error {
	return l.view("check", machine.check)
}
