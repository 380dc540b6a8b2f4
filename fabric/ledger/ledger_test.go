package ledger

import (
	"errors"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/journal"
)

// A bench has a ledger, and a time that passes when a test says so.
type bench struct {
	t    *testing.T
	l    *Ledger
	now  time.Time
	o    Options
	pool fabric.Pool
}

func newBench(t *testing.T, first, last fabric.Tag) *bench {
	l, err := Open(t.Context(), filepath.Join(t.TempDir(), "ledger"))
	noError(t, err)
	t.Cleanup(func() { noError(t, l.Check(), l.Close()) })
	return &bench{
		t: t, l: l, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		o: Options{Cooling: 30 * time.Second}, pool: vnis(first, last),
	}
}

func vnis(first, last fabric.Tag) fabric.Pool {
	return fabric.Pool{Name: "vni", Kind: fabric.VNI, Tags: []fabric.Range{{First: first, Last: last}}, PerJob: 1}
}

func noError(t testing.TB, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

func id(job uint32) journal.ID { return journal.ID{Job: job} }

// request is for a job on nodes n1 and n2.
func request(job journal.ID, wants ...Want) Request {
	return Request{Reservation: fabric.Reservation{Cluster: "c", Job: job, UID: 1000}, Nodes: []string{"n1", "n2"}, Wants: wants}
}

// untold reserves a tag for a job whose nodes do not hear of it.
func (b *bench) untold(job journal.ID) {
	b.t.Helper()
	_, err := b.l.Reserve(request(job, Want{Pool: b.pool, Count: 1}), b.o, b.now)
	noError(b.t, err)
}

func (b *bench) reserve(job journal.ID, count int) ([]fabric.Tag, error) {
	r, err := b.l.Reserve(request(job, Want{Pool: b.pool, Count: count}), b.o, b.now)
	if err == nil {
		err = b.l.Tell(job)
	}
	return r.Tags(fabric.VNI), err
}

// gives checks which tags a job gets.
func (b *bench) gives(job journal.ID, want ...fabric.Tag) {
	b.t.Helper()
	got, err := b.reserve(job, len(want))
	if err != nil || !slices.Equal(got, want) {
		b.t.Fatalf("job %s gets %v, error %v; want %v", job, got, err, want)
	}
}

// refuses checks that a job gets no tag now.
func (b *bench) refuses(job journal.ID) *ExhaustedError {
	b.t.Helper()
	got, err := b.reserve(job, 1)
	var exhausted *ExhaustedError
	if !errors.As(err, &exhausted) {
		b.t.Fatalf("job %s gets %v, error %v", job, got, err)
	}
	return exhausted
}

func (b *bench) end(job journal.ID) {
	b.t.Helper()
	noError(b.t, b.l.End(job, b.now))
}

func (b *bench) confirm(job journal.ID, nodes ...string) {
	b.t.Helper()
	for _, n := range nodes {
		noError(b.t, b.l.Confirm([]Confirmation{{Job: job, Node: n}}, b.now))
	}
}

// cool lets the cooling time pass.
func (b *bench) cool() { b.now = b.now.Add(b.o.Cooling) }

// free checks which of the pool's tags are free.
func (b *bench) free(want ...fabric.Range) {
	b.t.Helper()
	got, err := b.l.Pools([]fabric.Pool{b.pool}, b.o.Cooling, b.now)
	noError(b.t, err)
	if diff := cmp.Diff(want, got[0].Free); diff != "" {
		b.t.Fatalf("free tags (-want +got):\n%s\n%+v", diff, got[0].Taken)
	}
}

func (b *bench) entry(job journal.ID) Entry {
	b.t.Helper()
	entries, err := b.l.Entry(job.Job)
	noError(b.t, err)
	for _, e := range entries {
		if e.Reservation.Job == job {
			return e
		}
	}
	b.t.Fatalf("job %s is not in the ledger", job)
	return Entry{}
}

// Every step of a job's life may be repeated, and waits for what is missing.
func TestTheLifeOfATag(t *testing.T) {
	b := newBench(t, 1024, 1024)
	twice := func(step func()) { step(); step() }
	twice(func() { b.gives(id(1), 1024) })
	b.refuses(id(2))
	twice(func() { b.end(id(1)) })
	twice(func() { b.confirm(id(1), "n1") })
	if e := b.entry(id(1)); e.State != Releasing || !slices.Equal(e.Nodes, []string{"n2"}) {
		t.Errorf("entry = %+v", e)
	}
	b.cool()
	if e := b.refuses(id(2)); !e.Next.IsZero() {
		t.Errorf("it is free at %v without a confirmation of n2", e.Next)
	}
	twice(func() { b.confirm(id(1), "n2", "n3") })
	if e := b.refuses(id(2)); !e.Next.Equal(b.now.Add(b.o.Cooling)) {
		t.Errorf("the next is free at %v", e.Next)
	}
	b.now = b.now.Add(b.o.Cooling - 1)
	b.refuses(id(2))
	b.now = b.now.Add(1)
	b.gives(id(2), 1024)
	twice(func() { b.end(id(1)) })
	twice(func() { b.confirm(id(1), "n1", "n2") })
	b.gives(id(2), 1024)
}

// Until the end, a node may make the tags again.
func TestAConfirmationFromBeforeTheEndDoesNotCount(t *testing.T) {
	b := newBench(t, 1024, 1024)
	b.gives(id(1), 1024)
	b.confirm(id(1), "n1", "n2")
	b.end(id(1))
	b.cool()
	b.refuses(id(2))
	b.confirm(id(1), "n1", "n2")
	b.cool()
	b.gives(id(2), 1024)
}

// Its nodes know nothing of it, and have nothing to confirm.
func TestAJobThatEndsUntoldWaitsForNoNode(t *testing.T) {
	b := newBench(t, 1024, 1024)
	b.untold(id(1))
	noError(t, b.l.End(id(1), b.now, "n3"))
	b.cool()
	b.gives(id(2), 1024)
}

func TestAJobThatHasEndedIsNotTold(t *testing.T) {
	b := newBench(t, 1024, 1025)
	b.gives(id(1), 1024)
	b.end(id(1))
	for _, job := range []journal.ID{id(1), id(2)} { // one waits for its nodes, and of the other nothing is left
		if err := b.l.Tell(job); !errors.Is(err, ErrEnded) {
			t.Errorf("job %s: error %v", job, err)
		}
	}
}

// A repeated call may fail before it tells the nodes once more.
func TestAJobThatIsReservedAgainStaysTold(t *testing.T) {
	b := newBench(t, 1024, 1024)
	b.gives(id(1), 1024)
	b.untold(id(1))
	b.end(id(1))
	b.cool()
	b.refuses(id(2))
}

func TestARequeuedJobIsAnotherReservation(t *testing.T) {
	b := newBench(t, 1024, 1025)
	again := journal.ID{Job: 1, Restart: 1}
	b.gives(id(1), 1024)
	b.end(id(1))
	b.gives(again, 1025)
	b.end(again)
	b.confirm(again, "n1", "n2") // says nothing of the first run
	b.cool()
	b.free(fabric.Range{First: 1025, Last: 1025})
	b.confirm(id(1), "n1", "n2")
	b.cool()
	b.free(fabric.Range{First: 1024, Last: 1025})
}

func TestARunHasItsTagsOnce(t *testing.T) {
	b := newBench(t, 1024, 1025)
	b.gives(id(1), 1024)
	b.end(id(1))
	got, err := b.l.Reserve(request(id(1), Want{Pool: b.pool, Count: 1}), b.o, b.now)
	if tags := got.Tags(fabric.VNI); !errors.Is(err, ErrEnded) || len(tags) > 0 {
		t.Errorf("an ended job gets %v, error %v", tags, err)
	}
}

func TestARepeatedReserveAddsNodes(t *testing.T) {
	b := newBench(t, 1024, 1024)
	b.gives(id(1), 1024)
	q := request(id(1))
	q.Nodes = []string{"n1", "n3"}
	_, err := b.l.Reserve(q, b.o, b.now)
	noError(t, err)
	if got := b.entry(id(1)).Nodes; !slices.Equal(got, []string{"n1", "n2", "n3"}) {
		t.Errorf("nodes that have not confirmed: %v", got)
	}
}

func TestAnotherJobWithTheSameNumber(t *testing.T) {
	b := newBench(t, 1024, 1025)
	b.gives(id(1), 1024)
	q := request(id(1), Want{Pool: b.pool, Count: 1})
	q.Reservation.UID++
	got, err := b.l.Reserve(q, b.o, b.now)
	var other *otherJobError
	if !errors.As(err, &other) || other.UID != 1000 {
		t.Errorf("it gets %+v, error %v", got, err)
	}
}

func TestTheSubnetManagerConfirmsPKeys(t *testing.T) {
	b := newBench(t, 0x1000, 0x1000)
	b.pool.Kind = fabric.PKey
	pkey := func(job journal.ID) ([]fabric.Tag, error) {
		r, err := b.l.Reserve(request(job, Want{Pool: b.pool, Count: 1}), b.o, b.now)
		if err == nil {
			err = b.l.Tell(job)
		}
		return r.Tags(fabric.PKey), err
	}
	_, err := pkey(id(1))
	noError(t, err, b.l.ConfirmManager(id(1), b.now)) // too early: it does not count
	b.end(id(1))
	b.confirm(id(1), "n1", "n2")
	b.cool()
	if got, err := pkey(id(2)); !errors.Is(err, ErrExhausted) || !b.entry(id(1)).Manager {
		t.Fatalf("before the subnet manager has confirmed, job 2 gets %v, error %v", got, err)
	}
	noError(t, b.l.ConfirmManager(id(1), b.now), b.l.ConfirmManager(id(1), b.now))
	b.cool()
	got, err := pkey(id(2))
	if err != nil || !slices.Equal(got, []fabric.Tag{0x1000}) {
		t.Errorf("job 2 gets %v, error %v", got, err)
	}
}

func TestWhatTheSubnetManagerHasConfirmedSoFar(t *testing.T) {
	b := newBench(t, 0x1000, 0x1000)
	b.pool.Kind = fabric.PKey
	b.untold(id(1))
	noError(t, b.l.AskedManager(id(1), 5, b.now), b.l.AskedManager(id(9), 5, b.now))
	if e := b.entry(id(1)); e.Gone != 0 || !e.Asked.IsZero() {
		t.Errorf("%+v: the job runs, and may become a member again", e)
	}
	b.end(id(1))
	noError(t, b.l.AskedManager(id(1), 5, b.now), b.l.AskedManager(id(1), 3, b.now.Add(1)))
	if e := b.entry(id(1)); e.Gone != 5 || !e.Asked.Equal(b.now.Add(1)) || !e.Manager {
		t.Errorf("%+v: want five ports", e)
	}
}

func TestBoots(t *testing.T) {
	at := func(boot string) Boot { return Boot{Job: id(1), Node: "n1", ID: boot} }
	holds := func(b Boot) Boot { b.Holds = true; return b }
	of := func(b Boot, job journal.ID, node string) Boot { b.Job, b.Node = job, node; return b }
	tests := map[string]struct {
		before, after []Boot // the job's end
		confirmed     bool
	}{
		"after the job's end":                   {nil, []Boot{at("a"), at("a"), at("b")}, true},
		"of a node that held tags before it":    {nil, []Boot{holds(at("a")), at("b")}, true},
		"twice in one look":                     {nil, []Boot{at("b"), at("a")}, true},
		"while the job ran":                     {[]Boot{at("a")}, []Boot{at("b"), at("b")}, false},
		"of a job that still runs":              {[]Boot{at("a"), at("b")}, nil, false},
		"and the node has the tags again":       {nil, []Boot{at("a"), holds(at("b"))}, false},
		"of another node":                       {nil, []Boot{at("a"), of(at("b"), id(1), "n7")}, false},
		"after the end of another job":          {nil, []Boot{at("a"), of(at("b"), id(7), "n1")}, false},
		"of a node that has confirmed (not n1)": {nil, []Boot{of(at("a"), id(1), "n2"), of(at("b"), id(1), "n2")}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 1024, 1024)
			b.gives(id(1), 1024)
			for _, boot := range tt.before {
				noError(t, b.l.Rebooted([]Boot{boot}, b.now))
			}
			b.end(id(1))
			b.confirm(id(1), "n2")
			noError(t, b.l.Rebooted(tt.after, b.now))
			b.cool()
			_, err := b.reserve(id(2), 1)
			if (err == nil) != tt.confirmed {
				t.Errorf("confirmed %v, error of the next job: %v", !tt.confirmed, err)
			}
		})
	}
}

func TestQuarantineLastsUntilAnAdministratorForcesIt(t *testing.T) {
	b := newBench(t, 1024, 1024)
	b.gives(id(1), 1024)
	b.quarantine(id(1), "the card of n1 is broken")
	b.gives(id(1), 1024) // the job itself goes on
	if err := b.l.Force(id(1), b.now); !errors.Is(err, ErrRunning) {
		t.Fatalf("force on a job that runs: error %v", err)
	}
	b.end(id(1))
	b.confirm(id(1), "n1", "n2")
	b.cool()
	b.refuses(id(2))
	if e := b.entry(id(1)); e.State != Quarantined || e.Why != "the card of n1 is broken" {
		t.Errorf("entry = %+v", e)
	}
	noError(t, b.l.Force(id(1), b.now))
	b.refuses(id(2)) // it cools, as always
	b.cool()
	b.gives(id(2), 1024)
	if err := b.l.Force(id(1), b.now); !errors.Is(err, errUnknown) || !strings.Contains(err.Error(), "slurmv fabric pool") {
		t.Errorf("on a job that is gone: error %v", err)
	}
}

// quarantine does to a job what a conflict does.
func (b *bench) quarantine(job journal.ID, why string) {
	b.t.Helper()
	noError(b.t, b.l.update("test", func(m machine) error { return m.accuse(job, why) }))
}

func TestForceDoesWithoutConfirmations(t *testing.T) {
	b := newBench(t, 1024, 1024)
	b.gives(id(1), 1024)
	b.end(id(1))
	noError(t, b.l.Force(id(1), b.now))
	b.cool()
	b.gives(id(2), 1024)
}

// The ledger keeps what the fabric manager needs to forget a job, but not the job's tags.
func TestMulticastAddressesKeepTheEntry(t *testing.T) {
	b := newBench(t, 1024, 1024)
	c := &fabric.Collectives{Session: "c-1", Token: "secret"}
	if err := b.l.SetCollectives(id(1), c); !errors.Is(err, errUnknown) {
		t.Errorf("unknown job: error %v", err)
	}
	b.gives(id(1), 1024)
	noError(t, b.l.SetCollectives(id(1), c))
	b.end(id(1))
	if err := b.l.SetCollectives(id(1), c); !errors.Is(err, ErrEnded) {
		t.Errorf("ended job: error %v", err)
	}
	b.confirm(id(1), "n1", "n2")
	b.cool()
	b.gives(id(2), 1024)
	if e := b.entry(id(1)); e.State != Released || e.Reservation.Collectives.Token != "secret" {
		t.Errorf("entry = %+v", e)
	}
	noError(t, b.l.SetCollectives(id(1), nil), b.l.SetCollectives(id(1), nil))
	if all, err := b.l.Entry(1); err != nil || len(all) > 0 {
		t.Errorf("entries %+v, error %v", all, err)
	}
}

// Without a tag there is nothing on nodes.
func TestAJobWithoutTagsIsForgottenAtItsEnd(t *testing.T) {
	b := newBench(t, 1024, 1024)
	b.gives(id(1))
	b.entry(id(1))
	b.end(id(1))
	if all, err := b.l.Entries(); err != nil || len(all) > 0 {
		t.Errorf("entries %+v, error %v", all, err)
	}
}

func TestAClockThatWentBackCoolsAgain(t *testing.T) {
	b := newBench(t, 1024, 1024)
	b.gives(id(1), 1024)
	b.end(id(1))
	b.confirm(id(1), "n1", "n2")
	b.now = b.now.Add(-24 * time.Hour)
	b.refuses(id(2))
	b.cool()
	b.gives(id(2), 1024)
}

func TestRequestsThatMakeNoSense(t *testing.T) {
	b := newBench(t, 1024, 1030)
	none := request(id(1), Want{Pool: b.pool, Count: 1})
	none.Nodes = nil
	tests := map[string]Request{
		"no node":                     none,
		"too many tags":               request(id(1), Want{Pool: b.pool, Count: 42}),
		"too many tags of two pools":  request(id(1), Want{Pool: b.pool, Count: 3}, Want{Pool: vnis(1, 9), Count: 2}),
		"less than none":              request(id(1), Want{Pool: b.pool, Count: -1}),
		"a few too many, then enough": request(id(1), Want{Pool: b.pool, Count: 5}, Want{Pool: vnis(1, 9), Count: 0}),
	}
	for name, q := range tests {
		t.Run(name, func(t *testing.T) {
			if got, err := b.l.Reserve(q, b.o, b.now); err == nil || !strings.Contains(err.Error(), "reserve tags for job 1.0: ") {
				t.Errorf("it gets %+v, error %v", got, err)
			}
		})
	}
	if entries, err := b.l.Entries(); err != nil || len(entries) > 0 {
		t.Errorf("entries %+v, error %v", entries, err)
	}
}

func TestInstance(t *testing.T) {
	b := newBench(t, 1024, 1024)
	for _, want := range []string{"", "first", "second"} {
		if want != "" {
			noError(t, b.l.SetInstance(want))
		}
		if got, err := b.l.Instance(); err != nil || got != want {
			t.Errorf("instance %q, error %v; want %q", got, err, want)
		}
	}
}
