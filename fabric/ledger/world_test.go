package ledger

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/journal"
)

// A world is a cluster with a fabric: what is really on the hardware, what slurmctld and the
// nodes say of it, and a machine that hears of it late, several times or never.
type world struct {
	random  *rand.Rand
	m       machine
	now     time.Time
	cooling time.Duration
	pools   []fabric.Pool
	nodes   []*node
	members map[tag]journal.ID // of P_Keys, at the subnet manager
	removed map[tag]time.Time  // when hardware last had a tag
	jobs    []*job
	copies  []memory // of the ledger
	late    []Boot   // that are still to come to the ledger
	calm    bool     // nothing is lost any more
	history []string
}

// A node has tags on its hardware.
type node struct {
	name   string
	up     bool
	has    map[tag]journal.ID
	boot   int
	said   int          // the boot of its statement at slurmctld
	undone []journal.ID // in that statement
}

// A job is a run.
type job struct {
	id     journal.ID
	r      fabric.Reservation // in its record at slurmctld
	wants  []Want
	nodes  []*node
	began  time.Time
	active bool
}

func newWorld(seed uint64) *world {
	w := &world{
		random: rand.New(rand.NewPCG(seed, 0)), m: machineOf(newMemory()),
		now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), cooling: 30 * time.Second,
		members: map[tag]journal.ID{}, removed: map[tag]time.Time{},
	}
	for i := range 4 {
		w.nodes = append(w.nodes, &node{name: fmt.Sprintf("n%d", i), up: true, has: map[tag]journal.ID{}})
	}
	w.reconfigure()
	return w
}

func (w *world) note(format string, args ...any) {
	w.history = append(w.history, w.now.Format(time.TimeOnly)+" "+fmt.Sprintf(format, args...))
}

func (w *world) oneIn(n int) bool { return w.random.IntN(n) == 0 }

// lost reports whether one of n messages to the ledger is lost.
func (w *world) lost(n int) bool { return !w.calm && w.oneIn(n) }

func (w *world) reconfigure() {
	first := fabric.Tag(1024 + w.random.IntN(3))
	w.pools = []fabric.Pool{
		{Name: "vni", Kind: fabric.VNI, Tags: []fabric.Range{{First: first, Last: first + 3}, {First: 1040, Last: 1041}}},
		{Name: "pkey", Kind: fabric.PKey, Tags: []fabric.Range{{First: 0x1000, Last: 0x1002}}},
	}
	w.note("pools %v", w.pools)
}

// start starts a job, or the next run of an old one. The controller's process may die once
// the ledger has the job, before or after it says that it tells the nodes: then the job does not run.
func (w *world) start() error {
	j := &job{id: journal.ID{Job: uint32(len(w.jobs) + 1)}, began: w.now}
	if len(w.jobs) > 0 && w.oneIn(4) {
		old := w.jobs[w.random.IntN(len(w.jobs))]
		if last := w.lastRun(old.id.Job); !last.active {
			j.id = journal.ID{Job: old.id.Job, Restart: last.id.Restart + 1}
		}
	}
	for _, i := range w.random.Perm(len(w.nodes))[:1+w.random.IntN(3)] {
		j.nodes = append(j.nodes, w.nodes[i])
	}
	for _, p := range w.pools {
		j.wants = append(j.wants, Want{Pool: p, Count: w.random.IntN(3), Why: "none"})
	}
	r, err := w.m.reserve(j.request(), w.options(), w.now)
	if errors.Is(err, ErrExhausted) {
		return nil
	}
	if w.oneIn(5) {
		w.copy()
	}
	if j.r, j.active = r, !w.oneIn(10); err == nil && (j.active || w.oneIn(2)) {
		err = w.m.tell(j.id)
	}
	w.jobs = append(w.jobs, j)
	w.note("start %s on %v: %v, runs: %v", j.id, j.nodeNames(), r.Grants, j.active)
	return errors.Join(err, w.checkUnused(j))
}

func (w *world) lastRun(number uint32) (last *job) {
	for _, j := range w.jobs {
		if j.id.Job == number {
			last = j
		}
	}
	return last
}

func (w *world) options() Options {
	return Options{Cooling: w.cooling, EmptyIfExhausted: w.random.IntN(2) == 0}
}

func (j *job) request() Request {
	return Request{Reservation: fabric.Reservation{Job: j.id, UID: 1000}, Nodes: j.nodeNames(), Wants: j.wants}
}

func (j *job) nodeNames() (names []string) {
	for _, n := range j.nodes {
		names = append(names, n.name)
	}
	return names
}

// tags of the job, in order.
func (j *job) tags() (all []tag) {
	for _, g := range j.r.Grants {
		for _, number := range g.Tags {
			all = append(all, tag{g.Kind, number})
		}
	}
	return all
}

// A shared is two uses of a tag.
type shared struct{ text string }

func (s *shared) Error() string { return s.text }

// checkUnused returns a [*shared] if a job gets a tag that is or was in use.
func (w *world) checkUnused(j *job) error {
	for _, t := range j.tags() {
		for _, n := range w.nodes {
			if other, has := n.has[t]; has && other != j.id {
				return &shared{fmt.Sprintf("job %s gets %v, and %s has it of job %s", j.id, t, n.name, other)}
			}
		}
		if other, has := w.members[t]; has && other != j.id {
			return &shared{fmt.Sprintf("job %s gets %v, of which job %s is a member", j.id, t, other)}
		}
		if at, was := w.removed[t]; was && w.now.Sub(at) < w.cooling {
			return &shared{fmt.Sprintf("job %s gets %v, which was removed at %v", j.id, t, at)}
		}
		for _, other := range w.jobs {
			if other != j && other.active && slices.Contains(other.tags(), t) {
				return &shared{fmt.Sprintf("job %s gets %v, and job %s has it", j.id, t, other.id)}
			}
		}
	}
	return nil
}

// use makes a job's tags on one of its nodes, and its memberships, as each step may.
func (w *world) use(j *job) {
	n := j.nodes[w.random.IntN(len(j.nodes))]
	if !j.active || !n.up {
		return
	}
	w.note("%s uses its tags on %s", j.id, n.name)
	n.said = n.boot
	for _, t := range j.tags() {
		n.has[t] = j.id
		if t.kind == fabric.PKey {
			w.members[t] = j.id
		}
	}
}

// end ends a job. The ledger may not hear of it.
func (w *world) end(j *job) error {
	if !j.active {
		return nil
	}
	j.active = false
	w.note("end %s", j.id)
	if w.lost(3) {
		return nil
	}
	return w.m.end(j.id, w.now)
}

// undo undoes an ended job on a node, which says so. The ledger may not hear of it, and slurmctld may
// lose the node's word.
func (w *world) undo(n *node, j *job) error {
	if j.active || !n.up || !slices.Contains(j.nodes, n) {
		return nil
	}
	w.note("%s undoes %s", n.name, j.id)
	w.wipe(n, func(id journal.ID) bool { return id == j.id })
	if !slices.Contains(n.undone, j.id) && !w.lost(4) {
		n.undone = append(n.undone, j.id)
	}
	if w.lost(2) {
		return nil
	}
	return w.m.confirm([]Confirmation{{Job: j.id, Node: n.name}}, w.now)
}

func (w *world) wipe(n *node, which func(journal.ID) bool) {
	for t, id := range n.has {
		if which(id) {
			delete(n.has, t)
			w.removed[t] = w.now
		}
	}
}

func (w *world) leave(j *job) error {
	for t, id := range w.members {
		if id == j.id && !j.active {
			delete(w.members, t)
			w.removed[t] = w.now
		}
	}
	if j.active || w.lost(3) {
		return nil
	}
	return w.m.confirmManager(j.id, w.now)
}

func (w *world) reboot(n *node) {
	w.note("%s boots", n.name)
	w.wipe(n, func(journal.ID) bool { return true })
	n.boot, n.up = n.boot+1, true
	if w.calm || w.oneIn(2) { // else nobody has called slurmv clean yet
		n.said = n.boot
	}
}

// ask lets the nodes confirm what they have not: they undo what is left, and say so.
func (w *world) ask() error {
	entries, err := w.m.entries()
	for _, e := range entries {
		for _, j := range w.jobs {
			for _, n := range j.nodes {
				if j.id == e.Reservation.Job && slices.Contains(e.Nodes, n.name) {
					err = errors.Join(err, w.undo(n, j))
				}
			}
		}
	}
	return err
}

// boots are those of the nodes' statements, for what has ended in the ledger.
func (w *world) boots() (all []Boot, err error) {
	entries, err := w.m.entries()
	for _, e := range entries {
		for _, n := range w.nodes {
			if !e.Ended.IsZero() && slices.Contains(e.Nodes, n.name) {
				all = append(all, Boot{Job: e.Reservation.Job, Node: n.name, ID: fmt.Sprint(n.said)})
			}
		}
	}
	return all, err
}

// hearBoots tells the ledger what was read now, or some of it later.
func (w *world) hearBoots(read []Boot) error {
	hear := slices.Concat(w.late, read)
	w.late = nil
	if w.lost(3) {
		w.late, hear = read, hear[:len(hear)-len(read)]
	}
	return w.m.rebooted(hear, w.now)
}

// sweep tells the ledger what slurmctld knows.
func (w *world) sweep() error {
	w.note("sweep")
	var said []Confirmation
	boots, err := w.boots()
	if err != nil {
		return err
	}
	for _, n := range w.nodes {
		for _, id := range n.undone {
			said = append(said, Confirmation{Job: id, Node: n.name})
		}
	}
	var errs []error
	for _, j := range w.jobs {
		if !j.active {
			errs = append(errs, w.m.end(j.id, w.now))
		}
		if !w.lost(2) {
			errs = append(errs, w.leave(j))
		}
	}
	return errors.Join(append(errs, w.m.confirm(said, w.now), w.hearBoots(boots))...)
}

// anywhere reports whether hardware has a tag of the job.
func (w *world) anywhere(j *job) bool {
	of := func(has map[tag]journal.ID) bool {
		for _, id := range has {
			if id == j.id {
				return true
			}
		}
		return false
	}
	return of(w.members) || slices.ContainsFunc(w.nodes, func(n *node) bool { return of(n.has) })
}

func (w *world) copy() {
	w.note("copy")
	w.copies = append(w.copies, w.m.store.(memory).clone())
}

// restore puts an old copy of the ledger in place. Before the next job, all are adopted that
// slurmctld knows, and some of those that a node still has. What was taken is withheld.
func (w *world) restore() error {
	if len(w.copies) == 0 {
		return nil
	}
	lost := w.m
	w.m.store = w.copies[w.random.IntN(len(w.copies))].clone()
	w.note("restore")
	if err := w.m.growOld(); err != nil {
		return err
	}
	if !w.oneIn(4) {
		if err := w.sweep(); err != nil {
			return err
		}
	}
	var conflict *ConflictError
	for _, j := range w.jobs {
		if !j.active && (!w.anywhere(j) || w.oneIn(2)) {
			continue
		}
		if err := w.m.adopt(j.r, j.nodeNames(), j.began, w.now); err != nil {
			w.note("%v", err)
			if !errors.As(err, &conflict) {
				return err
			}
		}
	}
	if err := w.sweep(); err != nil {
		return err
	}
	taken, err := lost.notFree()
	if err != nil {
		return err
	}
	_, err = w.m.withhold(taken, w.now)
	return err
}

// forceUnknown is an administrator's, who has cleaned all nodes.
func (w *world) forceUnknown() error {
	for _, j := range w.jobs {
		if !j.active && w.anywhere(j) {
			return nil
		}
	}
	w.note("force unknown")
	if err := w.m.force(Unknown, w.now); !errors.Is(err, errUnknown) {
		return err
	}
	return nil
}

// repeat repeats a call of long ago.
func (w *world) repeat(j *job) error {
	n := w.nodes[w.random.IntN(len(w.nodes))]
	switch w.random.IntN(3) {
	case 0:
		return w.reserveAgain(j)
	case 1:
		if !j.active {
			return w.m.end(j.id, w.now)
		}
	default:
		if slices.Contains(n.undone, j.id) {
			return w.m.confirm([]Confirmation{{Job: j.id, Node: n.name}}, w.now)
		}
	}
	return nil
}

func (w *world) reserveAgain(j *job) error {
	known, _ := w.m.record(j.id)
	got, err := w.m.reserve(j.request(), w.options(), w.now)
	if !j.active && (errors.Is(err, ErrEnded) || errors.Is(err, ErrExhausted)) {
		return nil
	}
	w.note("reserve %s again: %v", j.id, got.Grants)
	if known == nil && err == nil {
		return w.checkUnused(&job{id: j.id, r: got})
	}
	if diff := cmp.Diff(j.r, got); diff != "" && j.active && err == nil {
		err = fmt.Errorf("job %s has another reservation (-first +second):\n%s", j.id, diff)
	}
	return err
}

// force is an administrator's, who has looked.
func (w *world) force(j *job) error {
	if j.active || w.anywhere(j) {
		return nil
	}
	w.note("force %s", j.id)
	if err := w.m.force(j.id, w.now); !errors.Is(err, errUnknown) && !errors.Is(err, ErrRunning) {
		return err
	}
	return nil
}

func (w *world) quarantine(j *job) error {
	if r, err := w.m.record(j.id); err != nil || r == nil || r.Released {
		return err
	}
	return w.m.accuse(j.id, "test")
}
