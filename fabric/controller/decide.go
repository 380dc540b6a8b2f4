package controller

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/ledger"
	"github.com/slurm-v/slurm-v/fabric/letter"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
)

// A noPoolError says that a job wants tags of which its partition has none.
type noPoolError struct {
	Kind      fabric.Kind
	Want      int
	Partition string
}

func (e *noPoolError) Error() string {
	return fmt.Sprintf("%d %ss wanted, and jobs of partition %s have none; submit without --vm-fabric=vni, or add a pool to [fabric] of slurmv.toml", e.Want, e.Kind.Word(), e.Partition)
}

// requestOf returns what the ledger is asked for. missing are empty grants for the kinds of
// which the partition has no pool. A job that has named a number of VNIs, and cannot have
// any, gets a [*NoPoolError], unless the site lets jobs go on without.
func requestOf(site config.Fabric, most config.Limits, h slurm.Hook, w fabric.Wish) (q ledger.Request, missing []fabric.Grant, err error) {
	classes, err := classesOf(site, w)
	if err != nil {
		return q, nil, err
	}
	vms, vfs, err := portsOf(len(h.Nodes), most, w)
	if err != nil {
		return q, nil, err
	}
	q = ledger.Request{Nodes: h.Nodes, Reservation: fabric.Reservation{
		Cluster: h.Cluster, Job: idOf(h.Job), UID: h.UID, Classes: classes, VMs: vms, VFs: vfs,
	}}
	pools := fabric.PoolsOf(site, h.Partition)
	for _, p := range pools {
		count, why := w.Count(p)
		q.Wants = append(q.Wants, ledger.Want{Pool: p, Count: count, Why: why})
	}
	for _, kind := range w.Kinds() {
		if slices.ContainsFunc(pools, func(p fabric.Pool) bool { return p.Kind == kind }) {
			continue
		}
		none := &noPoolError{Kind: kind, Want: w.Tags[kind], Partition: h.Partition}
		if kind == fabric.VNI && none.Want > 0 && site.Exhausted == config.ExhaustedFail {
			return q, nil, none
		}
		missing = append(missing, fabric.Grant{Kind: kind, Why: "jobs of partition " + h.Partition + " have none"})
	}
	return q, missing, nil
}

// classesOf returns the traffic classes of a job: those that it wants and the site allows.
// Users can forge the wish.
func classesOf(site config.Fabric, w fabric.Wish) ([]fabric.Class, error) {
	allowed := fabric.ClassesOf(site)
	if len(w.Classes) == 0 {
		return allowed, nil
	}
	for _, class := range w.Classes {
		if !slices.Contains(allowed, class) {
			return nil, fmt.Errorf("jobs may not use the traffic class %s: change --vm-fabric, or classes in [fabric.vni] of slurmv.toml", class)
		}
	}
	return w.Classes, nil
}

func idOf(run slurm.RunID) journal.ID { return journal.ID{Job: run.Job, Restart: run.Restart} }

// The largest numbers of VMs of a job, and of VFs of a VM, for which there are GUIDs.
const (
	maxVMs = 1 << 14
	maxVFs = 1 << 6
)

// portsOf returns how many VMs on so many nodes have VFs, and how many each. Users can forge
// the wish.
func portsOf(nodes int, most config.Limits, w fabric.Wish) (vms, vfs int, err error) {
	vms, vfs = nodes*w.VMs, w.VFs
	if vfs == 0 {
		return 0, 0, nil
	}
	if w.VMs > most.VMPerNode || vfs > most.VFPerVM {
		return 0, 0, fmt.Errorf("%d VMs a node with %d VFs each wanted; jobs may have %d with %d: change the job, or vm_per_node and vf_per_vm in [limits] of the controller's slurmv.toml",
			w.VMs, vfs, most.VMPerNode, most.VFPerVM)
	}
	if vms > maxVMs || vfs > maxVFs {
		return 0, 0, fmt.Errorf("%d VMs with %d VFs each: there are GUIDs for %d with %d", vms, vfs, maxVMs, maxVFs)
	}
	return vms, vfs, nil
}

// wantsCollectives reports whether the job gets multicast addresses.
func wantsCollectives(site config.Collectives, r fabric.Reservation, nodes int) bool {
	return site.URL != "" && len(r.Tags(fabric.VNI)) > 0 && nodes >= site.MinNodes
}

// nextTry returns when it is worth asking again for tags, after a sweep has changed nothing.
// states are the pools'. It is not, if even all tags that jobs are giving back do not
// suffice, or if they will not be there, and cool, before the deadline.
func nextTry(err error, states []ledger.PoolState, cooling time.Duration, now, deadline time.Time) (at time.Time, worth bool) {
	var exhausted *ledger.ExhaustedError
	if !errors.As(err, &exhausted) {
		return at, false
	}
	if at = exhausted.Next; !at.IsZero() && at.Before(deadline) {
		return at, true
	}
	at = now.Add(time.Second)
	return at, at.Add(cooling).Before(deadline) && exhausted.Want <= exhausted.Free+returning(exhausted.Pool, states)
}

// returning counts the tags of a pool that will be free if all nodes confirm.
func returning(pool string, states []ledger.PoolState) (n int) {
	for _, s := range states {
		if s.Pool.Name != pool {
			continue
		}
		for _, t := range s.Taken {
			if s.Pool.Has(t.Tag) && (t.State == ledger.Releasing || t.State == ledger.Cooling) {
				n++
			}
		}
	}
	return n
}

// endedBy returns the runs that have ended if EpilogSlurmctld runs for a record. Before the
// script of a job that is being requeued starts, Slurm counts the restart: so the older run
// is meant if it has not ended.
func endedBy(entries []ledger.Entry, at journal.ID) (ended []journal.ID) {
	for _, e := range entries {
		if e.Ended.IsZero() && e.Reservation.Job.Restart < at.Restart {
			ended = append(ended, e.Reservation.Job)
		}
	}
	if len(ended) == 0 {
		ended = []journal.ID{at}
	}
	return ended
}

// stale returns the runs that have not ended in the ledger and are none of slurmctld's.
// entries must be older than active: a run may begin in between.
func stale(entries []ledger.Entry, active []slurm.RunID) (ended []journal.ID) {
	lives := map[journal.ID]bool{}
	for _, run := range active {
		lives[idOf(run)] = true
	}
	for _, e := range entries {
		if e.Ended.IsZero() && !lives[e.Reservation.Job] {
			ended = append(ended, e.Reservation.Job)
		}
	}
	return ended
}

// silent returns the nodes that ended jobs wait for, in order.
func silent(entries []ledger.Entry) (nodes []string) {
	for _, e := range entries {
		if !e.Ended.IsZero() {
			nodes = append(nodes, e.Nodes...)
		}
	}
	slices.Sort(nodes)
	return slices.Compact(nodes)
}

// confirmations returns what the statement of a node confirms of what the ledger waits for. entries
// are older than the statement: what it says of a run that has ended since may be older than the run.
func confirmations(entries []ledger.Entry, s letter.Statement) (c []ledger.Confirmation) {
	for _, e := range entries {
		if !e.Ended.IsZero() && slices.Contains(e.Nodes, s.Node) && slices.Contains(s.Released, e.Reservation.Job) {
			c = append(c, ledger.Confirmation{Job: e.Reservation.Job, Node: s.Node})
		}
	}
	return c
}

const (
	// askAfter is how long after the end of a run a node may confirm by itself.
	askAfter = time.Minute

	// askAtOnce is how many nodes are asked in one sweep: each is two calls of slurmctld.
	askAtOnce = 64
)

// toAsk returns, by node, the runs for which nodes are to be asked: they neither confirm nor hold
// them. Nodes that were asked already leave room for others, and so do those that [keepLetters] names:
// a question takes away the node's letter.
func toAsk(entries []ledger.Entry, records map[string]slurm.NodeRecord, said []letter.Statement, now time.Time) map[string][]journal.ID {
	ask, keep := map[string][]journal.ID{}, keepLetters(entries, records, said)
	for _, e := range entries {
		if e.Ended.IsZero() || now.Sub(e.Ended) < askAfter {
			continue
		}
		for _, node := range e.Nodes {
			_, chosen := ask[node]
			r, found := records[node]
			if found && (chosen || len(ask) < askAtOnce) && !keep[node] && !spokenOf(e.Reservation.Job, r, said) {
				ask[node] = append(ask[node], e.Reservation.Job)
			}
		}
	}
	return ask
}

// spokenOf reports whether a node is asked for a run already, or says something of it.
func spokenOf(run journal.ID, r slurm.NodeRecord, said []letter.Statement) bool {
	return slices.Contains(letter.Asked(r.Comment), run) || slices.ContainsFunc(said, func(s letter.Statement) bool {
		return s.Node == r.Name && (s.Holds(run) || slices.Contains(s.Released, run))
	})
}

// keepLetters returns the nodes whose letters are still needed: they may confirm a run that is yet to
// end in the ledger. The letter of a node that is down says in which boot it was.
func keepLetters(entries []ledger.Entry, records map[string]slurm.NodeRecord, said []letter.Statement) map[string]bool {
	goOn, keep := map[journal.ID]bool{}, map[string]bool{}
	for _, e := range entries {
		goOn[e.Reservation.Job] = e.Ended.IsZero()
	}
	for _, s := range said {
		keep[s.Node] = slices.ContainsFunc(s.Released, func(run journal.ID) bool { return goOn[run] })
	}
	for name, r := range records {
		keep[name] = keep[name] || slices.Contains(r.State, "DOWN")
	}
	return keep
}

// boots returns the boot of a node for the ended runs that wait for it.
func boots(entries []ledger.Entry, s letter.Statement) (all []ledger.Boot) {
	for _, e := range entries {
		job := e.Reservation.Job
		if !e.Ended.IsZero() && slices.Contains(e.Nodes, s.Node) && s.Boot != "" {
			all = append(all, ledger.Boot{Job: job, Node: s.Node, ID: s.Boot, Holds: s.Holds(job)})
		}
	}
	return all
}

// abandoned returns the P_Keys of an ended job of which the subnet manager must remove all
// members. A P_Key that another job has, too, after a conflict, keeps its members.
func abandoned(of ledger.Entry, entries []ledger.Entry) (pkeys []fabric.Tag) {
	for _, tag := range of.Reservation.Tags(fabric.PKey) {
		shared := slices.ContainsFunc(entries, func(e ledger.Entry) bool {
			return e.Ended.IsZero() && e.Reservation.Job != of.Reservation.Job && slices.Contains(e.Reservation.Tags(fabric.PKey), tag)
		})
		if !shared {
			pkeys = append(pkeys, tag)
		}
	}
	return pkeys
}

// lacking returns the jobs of slurmctld whose runs the ledger does not have.
func lacking(entries []ledger.Entry, jobs []slurm.NotedJob) []slurm.NotedJob {
	has := map[journal.ID]bool{}
	for _, e := range entries {
		has[e.Reservation.Job] = true
	}
	return slices.DeleteFunc(slices.Clone(jobs), func(job slurm.NotedJob) bool { return has[runOf(job)] })
}

// A leftover is a run that nodes say they have tags of, and that is not in the ledger.
type leftover struct {
	reservation fabric.Reservation
	nodes       []string
}

// leftovers returns the runs that nodes hold and the ledger does not have, by job.
func leftovers(cluster string, said []letter.Statement, entries []ledger.Entry, pools []fabric.Pool) []leftover {
	all := map[journal.ID]leftover{}
	for _, s := range said {
		for _, h := range s.Held {
			found := all[h.Job]
			found.reservation = reservationOf(cluster, h, pools)
			found.nodes = append(found.nodes, s.Node)
			all[h.Job] = found
		}
	}
	for _, id := range jobsOf(entries) {
		delete(all, id)
	}
	return slices.SortedFunc(maps.Values(all), func(a, b leftover) int { return a.reservation.Job.Compare(b.reservation.Job) })
}

// reservationOf returns the reservation of which a node has the tags. A tag that is in no pool any
// more keeps its kind's name as that of its pool.
func reservationOf(cluster string, h letter.Holding, pools []fabric.Pool) fabric.Reservation {
	r := fabric.Reservation{Cluster: cluster, Job: h.Job, UID: h.UID, VMs: h.VMs, VFs: h.VFs}
	for _, kind := range fabric.Kinds {
		for _, tag := range h.Tags[kind] {
			g := fabric.Grant{Pool: string(kind), Kind: kind, Tags: []fabric.Tag{tag}}
			for _, p := range pools {
				if p.Kind == kind && p.Has(tag) {
					g.Pool = p.Name
				}
			}
			r.Grants = append(r.Grants, g)
		}
	}
	return r
}

func runOf(job slurm.NotedJob) journal.ID { return journal.ID{Job: job.Job, Restart: job.Restart} }

func runsOf(jobs []slurm.NotedJob) (runs []slurm.RunID) {
	for _, job := range jobs {
		runs = append(runs, slurm.RunID{Job: job.Job, Restart: job.Restart})
	}
	return runs
}

// redacted returns the reservation without what only the job's own programs may know.
func redacted(r fabric.Reservation) fabric.Reservation {
	if r.Collectives != nil {
		c := *r.Collectives
		c.Token = ""
		r.Collectives = &c
	}
	return r
}

// waiting reports whether an ended job waits for a node or a manager.
func waiting(entries []ledger.Entry) bool {
	return slices.ContainsFunc(entries, func(e ledger.Entry) bool {
		return !e.Ended.IsZero() && (len(e.Nodes) > 0 || e.Manager || e.Reservation.Collectives != nil)
	})
}

// waitForSubnet returns the ended jobs of whose P_Keys the subnet manager has not confirmed
// everything. A job that it was asked about goes behind the others, so that it keeps none of
// them waiting for ever.
func waitForSubnet(entries []ledger.Entry) (wait []ledger.Entry) {
	for _, e := range entries {
		if !e.Ended.IsZero() && e.Manager {
			wait = append(wait, e)
		}
	}
	slices.SortStableFunc(wait, func(a, b ledger.Entry) int { return a.Asked.Compare(b.Asked) })
	return wait
}

// haveSessions returns the ended jobs that have multicast addresses.
func haveSessions(entries []ledger.Entry) (have []ledger.Entry) {
	for _, e := range entries {
		if !e.Ended.IsZero() && e.Reservation.Collectives != nil {
			have = append(have, e)
		}
	}
	return have
}

func jobsOf(entries []ledger.Entry) (jobs []journal.ID) {
	for _, e := range entries {
		jobs = append(jobs, e.Reservation.Job)
	}
	return jobs
}

// goingOn returns the reservations of the jobs that had theirs before, token included, and
// have not ended since.
func goingOn(before, after []ledger.Entry) (live []fabric.Reservation) {
	for _, e := range before {
		still := slices.ContainsFunc(after, func(a ledger.Entry) bool { return a.Reservation.Job == e.Reservation.Job && a.Ended.IsZero() })
		if still && told(e.Reservation) {
			live = append(live, e.Reservation)
		}
	}
	return live
}
