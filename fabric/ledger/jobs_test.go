package ledger

import (
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/journal"
)

// A thousand jobs come and go on four nodes with fifty tags, as many as run at once. Their
// nodes need some seconds to undo and to confirm.

const (
	thousand    = 1000
	atOnce      = 50
	confirmTime = 5 * time.Second // at most, from a job's end
)

// An event happens at a time of the simulation.
type event struct {
	at time.Time
	do func() error
}

// events is a heap of what is to come.
type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at.Before(e[j].at) }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	last := (*e)[len(*e)-1]
	*e = (*e)[:len(*e)-1]
	return last
}

// A site runs jobs over the ledger, and looks at the tags on its nodes.
type site struct {
	m       machine
	random  *rand.Rand
	now     time.Time
	options Options
	pool    fabric.Pool
	coming  events
	running int
	most    int
	waited  time.Duration
	has     map[string]map[fabric.Tag]journal.ID // of nodes
	removed map[fabric.Tag]time.Time
}

func newSite() *site {
	s := &site{
		m: machineOf(newMemory()), random: rand.New(rand.NewPCG(7, 7)), now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		options: Options{Cooling: 30 * time.Second}, pool: vnis(1024, 1024+atOnce-1),
		has: map[string]map[fabric.Tag]journal.ID{}, removed: map[fabric.Tag]time.Time{},
	}
	for _, n := range []string{"n1", "n2", "n3", "n4"} {
		s.has[n] = map[fabric.Tag]journal.ID{}
	}
	return s
}

func (s *site) after(d time.Duration, do func() error) { heap.Push(&s.coming, event{s.now.Add(d), do}) }

func (s *site) upTo(most time.Duration) time.Duration {
	return time.Duration(s.random.Int64N(int64(most)))
}

// next lets the next event happen, or time pass until a time.
func (s *site) next(until time.Time) error {
	if len(s.coming) == 0 || s.coming[0].at.After(until) {
		s.now = until
		return nil
	}
	e := heap.Pop(&s.coming).(event)
	s.now = e.at
	return e.do()
}

// run runs a job with its tag on the nodes until it has ended and been undone.
func (s *site) run(job journal.ID, nodes []string) error {
	for s.running == atOnce {
		if err := s.next(s.now.Add(time.Hour)); err != nil {
			return err
		}
	}
	tag, err := s.reserve(job, nodes)
	if err != nil {
		return err
	}
	if err := s.put(job, tag, nodes); err != nil {
		return err
	}
	s.running++
	s.most = max(s.most, s.running)
	s.after(s.upTo(10*time.Minute), func() error { return s.end(job, tag, nodes) })
	return nil
}

// reserve waits as the prolog does: for confirmations of nodes, and for what cools.
func (s *site) reserve(job journal.ID, nodes []string) (fabric.Tag, error) {
	q := Request{Reservation: fabric.Reservation{Job: job}, Nodes: nodes, Wants: []Want{{Pool: s.pool, Count: 1}}}
	began := s.now
	for {
		r, err := s.m.reserve(q, s.options, s.now)
		if err == nil {
			s.waited = max(s.waited, s.now.Sub(began))
			return r.Tags(fabric.VNI)[0], s.m.tell(job)
		}
		last := began.Add(s.options.Cooling + confirmTime)
		if !errors.Is(err, ErrExhausted) || s.now.Equal(last) {
			return 0, fmt.Errorf("job %s is refused: %w", job, err)
		}
		var exhausted *ExhaustedError
		if errors.As(err, &exhausted) && !exhausted.Next.IsZero() {
			last = exhausted.Next
		}
		if err := s.next(last); err != nil {
			return 0, err
		}
	}
}

// put makes a tag on nodes, and returns a [*shared] if another job has or had it.
func (s *site) put(job journal.ID, tag fabric.Tag, nodes []string) error {
	for name, has := range s.has {
		if other, taken := has[tag]; taken {
			return &shared{fmt.Sprintf("job %s gets tag %d, which job %s has on %s", job, tag, other, name)}
		}
	}
	if at, was := s.removed[tag]; was && s.now.Sub(at) < s.options.Cooling {
		return &shared{fmt.Sprintf("job %s gets tag %d, removed %v ago", job, tag, s.now.Sub(at))}
	}
	for _, n := range nodes {
		s.has[n][tag] = job
	}
	return nil
}

func (s *site) end(job journal.ID, tag fabric.Tag, nodes []string) error {
	s.running--
	for _, n := range nodes {
		s.after(s.upTo(confirmTime), func() error {
			delete(s.has[n], tag)
			s.removed[tag] = s.now
			return s.m.confirm([]Confirmation{{job, n}}, s.now)
		})
	}
	return s.m.end(job, s.now)
}

// all runs all jobs in random order.
func (s *site) all() error {
	names := []string{"n1", "n2", "n3", "n4"}
	for _, number := range s.random.Perm(thousand) {
		s.random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		nodes := append([]string(nil), names[:1+s.random.IntN(4)]...)
		if err := s.run(id(uint32(number)), nodes); err != nil {
			return err
		}
	}
	for len(s.coming) > 0 {
		if err := s.next(s.now.Add(time.Hour)); err != nil {
			return err
		}
	}
	return nil
}

func TestAThousandJobsShareNoTagAndNoneIsRefused(t *testing.T) {
	s := newSite()
	noError(t, s.all(), s.m.check())
	if entries, err := s.m.entries(); err != nil || len(entries) > 0 || s.most != atOnce {
		t.Errorf("%d entries are left, error %v; %d jobs ran at once", len(entries), err, s.most)
	}
	t.Logf("up to %d jobs at once, the longest wait was %v", s.most, s.waited)
}

// The test above notices what it looks for.
func TestASharedTagIsNoticed(t *testing.T) {
	for name, plant := range map[string]func(s *site){
		"a node confirms before it has undone":    func(s *site) { s.has["n4"][1024+7] = id(5000) },
		"a tag is removed after its confirmation": func(s *site) { s.removed[1024+7] = s.now.Add(time.Hour) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite()
			plant(s)
			var twice *shared
			if err := s.all(); !errors.As(err, &twice) {
				t.Errorf("error = %v", err)
			}
		})
	}
}

// A pool that is too small is noticed as well.
func TestARefusedJobIsNoticed(t *testing.T) {
	s := newSite()
	s.pool = vnis(1024, 1024+atOnce/10-1)
	if err := s.all(); !errors.Is(err, ErrExhausted) {
		t.Errorf("error = %v", err)
	}
}
