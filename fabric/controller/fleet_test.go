package controller

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/letter"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
)

// A fleet is four nodes that exist in memory, and slurmctld, which a controller with a real ledger
// serves. Nodes write real letters. They lose their words, and reboot.
type fleet struct {
	*bench
	random  *rand.Rand
	nodes   []*host
	running map[uint32][]*host // jobs that have their tags
	most    int                // of running
	removed map[fabric.Tag]time.Time
}

// A host is a node. Only its tags are hardware.
type host struct {
	name    string
	boots   int
	said    letter.Statement
	told    string // the letter in its record; "" if that is an older one
	tags    map[fabric.Tag]journal.ID
	journal map[journal.ID]bool // may be lost by a reboot
	ended   []journal.ID        // whose epilogs have not come yet
	lies    bool                // it confirms what it still has, and does not reboot
}

func newFleet(b *bench) *fleet {
	f := &fleet{bench: b, random: rand.New(rand.NewPCG(15, 4)), running: map[uint32][]*host{}, removed: map[fabric.Tag]time.Time{}}
	for i := range 4 {
		h := &host{name: fmt.Sprintf("n%d", i+1)}
		h.boot()
		f.nodes = append(f.nodes, h)
	}
	return f
}

// boot ends what the hardware has.
func (h *host) boot() {
	h.boots++
	h.said = letter.Statement{Node: h.name, Boot: fmt.Sprintf("%s-%d", h.name, h.boots)}
	h.tags, h.told, h.ended = map[fabric.Tag]journal.ID{}, "", nil
}

func (f *fleet) reboots() (n int) {
	for _, h := range f.nodes {
		n += h.boots - 1
	}
	return n
}

func (f *fleet) oneIn(n int) bool { return f.random.IntN(n) == 0 }

// A shared is the error for a tag that two jobs have, or had within the cooling time.
type shared struct{ what string }

func (s *shared) Error() string { return s.what }

// start gives a job its tags as soon as its licence is free, and a tag is: Slurm gives back a licence
// when the job ends, and the nodes have still to confirm then.
func (f *fleet) start(number uint32) error {
	for len(f.running) == atOnce {
		f.endOne()
	}
	if err := f.awaitTag(number); err != nil {
		return err
	}
	nodes := slices.Clone(f.nodes)
	f.random.Shuffle(len(nodes), func(i, j int) { nodes[i], nodes[j] = nodes[j], nodes[i] })
	nodes = nodes[:1+f.random.IntN(len(nodes))]
	h := hookOn(number, nodes)
	f.change(func(w *world) {
		w.Jobs[number] = job{State: "RUNNING", Nodes: h.Nodes[0]}
		w.Calls = nil
	})
	r, err := f.Reserve(f.t.Context(), h, fabric.Wish{Tags: map[fabric.Kind]int{fabric.VNI: 1}})
	if err != nil {
		return fmt.Errorf("job %d is refused: %w", number, err)
	}
	f.running[number] = nodes
	f.most = max(f.most, len(f.running))
	return f.up(r.Job, vnis(r)[0], nodes)
}

func hookOn(number uint32, nodes []*host) slurm.Hook {
	h := hook(run(number, 0))
	h.Nodes = nil
	for _, n := range nodes {
		h.Nodes = append(h.Nodes, n.name)
	}
	return h
}

// awaitTag lets time pass until a tag is free.
func (f *fleet) awaitTag(number uint32) error {
	for range 50 * atOnce {
		states, err := f.Pools(f.t.Context(), fabric.Pools(f.Site))
		if err != nil {
			return err
		}
		if len(states[0].Free) > 0 {
			return nil
		}
		f.happen()
		if f.oneIn(5) {
			f.sweep()
		}
	}
	return fmt.Errorf("job %d is refused: no tag comes back", number)
}

// up makes the tag on the nodes.
func (f *fleet) up(id journal.ID, tag fabric.Tag, nodes []*host) error {
	for _, h := range f.nodes {
		if other, taken := h.tags[tag]; taken {
			return &shared{fmt.Sprintf("job %s gets tag %d, which job %s has on %s", id, tag, other, h.name)}
		}
	}
	if at, was := f.removed[tag]; was && f.now.Sub(at) < f.cooling() {
		return &shared{fmt.Sprintf("job %s gets tag %d, removed %v ago", id, tag, f.now.Sub(at))}
	}
	for _, h := range nodes {
		if h.told == "" {
			f.tell(h) // in which boot it is
		}
		h.tags[tag] = id
		if h.journal == nil {
			h.journal = map[journal.ID]bool{}
		}
		h.journal[id] = true
	}
	return nil
}

// tell writes the node's letter.
func (f *fleet) tell(h *host) {
	key, err := f.key()
	if err != nil {
		f.t.Fatal(err)
	}
	var held []letter.Holding
	for id := range h.journal {
		held = append(held, letter.Holding{Job: id})
	}
	h.said = h.said.Holding(held)
	if h.told, err = letter.Seal(key, letter.NodeSubject("c", h.name), h.said); err != nil {
		f.t.Fatal(err)
	}
	f.change(func(w *world) {
		w.Nodes[h.name] = node{Comment: letter.PutBlock(letter.DropAsks(w.Nodes[h.name].Comment), h.told)}
	})
}

// endOne ends a job. Its EpilogSlurmctld may be killed.
func (f *fleet) endOne() {
	jobs := slices.Sorted(maps.Keys(f.running))
	if len(jobs) > 0 {
		f.end(jobs[f.random.IntN(len(jobs))])
	}
}

func (f *fleet) endJob(number uint32, epilog bool) {
	nodes := f.running[number]
	delete(f.running, number)
	f.change(func(w *world) { delete(w.Jobs, number) })
	for _, h := range nodes {
		h.ended = append(h.ended, journal.ID{Job: number})
	}
	if !epilog {
		return
	}
	if err := f.Release(f.t.Context(), hookOn(number, nodes)); err != nil {
		f.t.Fatal(err)
	}
}

func (f *fleet) end(number uint32) { f.endJob(number, !f.oneIn(10)) }

// undo is an epilog on a node. Its word may be lost.
func (f *fleet) undo(h *host, id journal.ID) {
	maps.DeleteFunc(h.tags, func(tag fabric.Tag, has journal.ID) bool {
		if has == id && !h.lies {
			f.removed[tag] = f.now
		}
		return has == id && !h.lies
	})
	delete(h.journal, id)
	h.said, h.told = h.said.With(id), ""
	if !f.oneIn(3) {
		f.tell(h)
	}
}

// clean is the health check of a node: it ends what has ended, answers the controller, and repeats its
// word.
func (f *fleet) clean(h *host) {
	comment := f.change(func(*world) {}).Nodes[h.name].Comment
	for _, id := range slices.SortedFunc(maps.Keys(h.journal), journal.ID.Compare) {
		if _, runs := f.running[id.Job]; !runs {
			f.undo(h, id)
		}
	}
	asked := letter.Asked(comment)
	for _, id := range asked {
		if _, runs := f.running[id.Job]; !runs && !h.journal[id] {
			h.said, h.told = h.said.With(id), ""
		}
	}
	if text, _ := letter.Block(comment); h.told == "" || text != h.told || len(asked) > 0 {
		f.tell(h)
	}
}

// restart ends the jobs of a node. One without a disk loses its journals.
func (f *fleet) restart(h *host) {
	for _, number := range slices.Sorted(maps.Keys(f.running)) {
		if slices.Contains(f.running[number], h) {
			f.end(number)
		}
	}
	for tag := range h.tags {
		f.removed[tag] = f.now
	}
	h.boot()
	if f.oneIn(2) {
		h.journal = nil
	}
}

// happen lets something happen, and some seconds pass.
func (f *fleet) happen() {
	f.now = f.now.Add(time.Duration(1+f.random.IntN(10)) * time.Second)
	h := f.nodes[f.random.IntN(len(f.nodes))]
	switch n := f.random.IntN(100); {
	case n < 2 && !h.lies:
		f.restart(h)
	case n < 10:
		f.clean(h)
	case n < 20:
		f.endOne()
	case len(h.ended) > 0:
		id := h.ended[0]
		h.ended = h.ended[1:]
		if !f.oneIn(20) { // slurmd was killed, and no epilog comes
			f.undo(h, id)
		}
	}
}

// all runs so many jobs in random order, and then waits until all tags are free.
func (f *fleet) all(jobs int) error {
	for _, number := range f.random.Perm(jobs) {
		if err := f.start(1 + uint32(number)); err != nil {
			return err
		}
		for range f.random.IntN(4) {
			f.happen()
		}
		if f.oneIn(10) {
			f.sweep()
		}
	}
	return f.rest()
}

// rest ends all jobs. Nothing more is lost then.
func (f *fleet) rest() error {
	for len(f.running) > 0 {
		f.endOne()
	}
	for range 5 {
		f.now = f.now.Add(askAfter)
		for _, h := range f.nodes {
			f.clean(h)
		}
		f.sweep()
	}
	f.now = f.now.Add(f.cooling())
	for _, h := range f.nodes {
		if len(h.tags) > 0 {
			return &shared{fmt.Sprintf("%s still has %v", h.name, h.tags)}
		}
	}
	states, err := f.Pools(f.t.Context(), fabric.Pools(f.Site))
	if err == nil && (len(states[0].Taken) > 0 || len(f.entries()) > 0) {
		err = fmt.Errorf("tags are left: %+v, of %+v", states[0].Taken, f.entries())
	}
	return err
}
