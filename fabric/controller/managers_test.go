package controller

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/ledger"
	"github.com/slurm-v/slurm-v/journal"
)

// A subnet is a subnet manager that may be down.
type subnet struct {
	members map[fabric.Tag][]fabric.GUID
	down    error
	silent  bool          // it answers nobody who wants a port removed
	gives   int           // so many times it removes ports after all
	asked   []fabric.GUID // the first port of each demand to remove some
	hushed  func()        // it has fallen silent
	until   time.Time     // the deadline of the last demand
}

func (s *subnet) Join(_ context.Context, pkey fabric.Tag, ports []fabric.GUID) error {
	if s.down == nil {
		s.members[pkey] = append(s.members[pkey], ports...)
	}
	return s.down
}

func (s *subnet) Leave(ctx context.Context, pkey fabric.Tag, ports []fabric.GUID) error {
	s.asked = append(s.asked, ports[0])
	s.until, _ = ctx.Deadline()
	if s.gives--; s.silent && s.gives < 0 {
		if s.hushed != nil {
			s.hushed()
		}
		<-ctx.Done()
		return ctx.Err()
	}
	if s.down == nil {
		s.members[pkey] = slices.DeleteFunc(s.members[pkey], func(g fabric.GUID) bool { return slices.Contains(ports, g) })
	}
	return s.down
}

func withPKeys(b *bench) *subnet {
	b.Site.PKey.Pool = config.Tags{{First: 0x1000, Last: 0x1000}}
	s := &subnet{members: map[fabric.Tag][]fabric.GUID{}}
	b.Subnet = s
	return s
}

func TestPKeysNeedTheSubnetManager(t *testing.T) {
	b := newBench(t)
	b.Site.Cooling = 0
	s := withPKeys(b)
	b.mustStart(run(7, 0), "pkey:1,vms:2,vfs:1")
	if len(s.members[0x1000]) != 4 {
		t.Fatalf("members %v", s.members)
	}
	b.end(run(7, 0))
	b.state("n1", id(7, 0))
	b.state("n2", id(7, 0))
	s.down = errors.New("OpenSM does not answer")
	if _, err := b.Sweep(context.Background()); err == nil || !strings.Contains(err.Error(), "0x9000") {
		t.Errorf("error %v", err)
	}
	b.Now, b.Patience = time.Now, 5*time.Second // it waits for a confirmation, but not for ever
	if _, err := b.start(run(8, 0), "pkey:1,vms:1,vfs:1"); !errors.Is(err, ledger.ErrExhausted) {
		t.Errorf("a P_Key with members is given again: %v", err)
	}
	s.down = nil
	b.mustStart(run(8, 1), "pkey:1,vms:1,vfs:1")
	if len(s.members[0x1000]) != 2 {
		t.Errorf("members %v", s.members)
	}
}

// manyPKeys starts and ends jobs with a P_Key each.
func manyPKeys(b *bench, jobs ...uint32) *subnet {
	s := withPKeys(b)
	b.Site.PKey.Pool[0].Last += uint16(len(jobs)) - 1
	for _, job := range jobs {
		b.mustStart(run(job, 0), "pkey:1,vms:1,vfs:1")
		b.end(run(job, 0))
	}
	return s
}

// shortly is a context in which a silent manager is waited for.
func shortly(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// aDeadline is a context whose deadline has passed when over is closed.
type aDeadline struct {
	context.Context
	over chan struct{}
}

func (p aDeadline) Done() <-chan struct{} { return p.over }

func (p aDeadline) Err() error {
	select {
	case <-p.over:
		return context.DeadlineExceeded
	default:
		return nil
	}
}

// untilSilent is a context whose deadline passes when the manager falls silent, however long
// everything before that takes.
func (s *subnet) untilSilent(t *testing.T) context.Context {
	p := aDeadline{t.Context(), make(chan struct{})}
	s.hushed = sync.OnceFunc(func() { close(p.over) })
	return p
}

func TestASilentManagerIsAskedOnceASweep(t *testing.T) {
	b := newBench(t)
	s := manyPKeys(b, 7, 8, 9)
	s.silent = true
	for range 4 {
		b.now = b.now.Add(time.Minute)
		if _, err := b.sweepManagers(s.untilSilent(t)); !errors.Is(err, context.DeadlineExceeded) { // the nodes may take longer
			t.Errorf("error %v", err)
		}
	}
	var jobs []fabric.GUID
	for _, job := range []uint32{7, 8, 9, 7} {
		jobs = append(jobs, fabric.PortGUID(job, 0, 0))
	}
	if !slices.Equal(s.asked, jobs) {
		t.Errorf("it was asked about %v, want %v: one job a sweep, and each in its turn", s.asked, jobs)
	}
}

// One job takes up to half a minute, and 50 would take 25.
func TestNobodyWaitsForTheManagersOfOtherJobs(t *testing.T) {
	b := newBench(t)
	b.Site.VNI.Pool = config.Tags{{First: 1024, Last: 1024}}
	b.Site.Cooling = 0
	s := manyPKeys(b, 7, 8)
	b.mustStart(run(9, 0), "vni:1")
	b.end(run(9, 0))
	b.state("n1", id(9, 0))
	b.state("n2", id(9, 0))
	s.silent, s.asked = true, nil
	unlock, _, err := locks(b.Dir).try(managersLock) // another process waits for the subnet manager
	if err != nil {
		t.Fatal(err)
	}
	b.mustStart(run(10, 0), "vni:1")
	unlock()
	if len(s.asked) > 0 || len(b.warnings) > 0 {
		t.Errorf("a job without P_Keys has asked about %v: %q", s.asked, b.warnings)
	}
	g := giving{Controller: b.Controller}
	late := managerWait - time.Second
	if _, err := g.sweepFor(s.untilSilent(t), &ledger.ExhaustedError{Kind: fabric.PKey}, b.now.Add(late)); err != nil {
		t.Error(err)
	}
	if left := time.Until(s.until); s.until.IsZero() || left > late || len(s.asked) != 1 {
		t.Errorf("a job with P_Keys waits %v longer, and has asked about %v", left, s.asked)
	}
	if _, err := g.sweepFor(t.Context(), &ledger.ExhaustedError{Kind: fabric.PKey}, b.now); err != nil || len(s.asked) != 1 {
		t.Errorf("%v; it waits when it is too late: %v", err, s.asked)
	}
}

func TestPortsThatHaveLeftAreNotAskedAgain(t *testing.T) {
	b := newBench(t)
	s := withPKeys(b)
	b.mustStart(run(7, 0), "pkey:1,vms:32,vfs:16") // 1024 ports on two nodes
	b.end(run(7, 0))
	s.silent, s.gives = true, 1
	if _, err := b.Sweep(s.untilSilent(t)); err == nil {
		t.Error("no error, and the subnet manager is silent")
	}
	if e := b.entries(); len(e) != 1 || !e[0].Manager || e[0].Gone != portsAtOnce {
		t.Fatalf("%+v: want half of the ports confirmed", e)
	}
	s.silent, s.asked = false, nil
	b.sweep()
	if e := b.entries(); len(s.asked) != 1 || s.asked[0] != fabric.PortGUID(7, portsAtOnce/16, 0) || e[0].Manager || len(s.members[0x1000]) > 0 {
		t.Errorf("it was asked from %v on, %d members are left: %+v", s.asked, len(s.members[0x1000]), e)
	}
}

func TestTheManagersTimeGrowsWithThePorts(t *testing.T) {
	if one, many := managerTime(1), managerTime(2048); many < one+100*time.Second {
		t.Errorf("%v for 2048 ports, %v for one", many, one)
	}
	if most := managerTime(portsAtOnce); most >= managersTurn {
		t.Errorf("%v for the ports that are asked at once, and a sweep lasts %v: it gets no further", most, managersTurn)
	}
}

func TestAJobWhoseMembershipIsNotConfirmedDoesNotStart(t *testing.T) {
	b := newBench(t)
	s := withPKeys(b)
	s.down = errors.New("OpenSM does not answer")
	_, err := b.start(run(7, 0), "pkey:1,vms:2,vfs:1")
	if err == nil {
		t.Fatal("it starts")
	}
	if _, _, err := b.comment(run(7, 0)); err == nil {
		t.Error("its nodes have a letter")
	}
	e := b.entries()
	if len(e) != 1 || e[0].Ended.IsZero() || len(e[0].Nodes) > 0 || !e[0].Manager {
		t.Fatalf("%+v: want only the subnet manager to confirm", e)
	}
	s.down = nil
	b.sweep()
	if e := b.entries(); len(e) > 0 {
		t.Errorf("%+v", e)
	}
}

func TestAJobThatCannotBeToldIsReleasedByItsNodes(t *testing.T) {
	b := newBench(t)
	b.change(func(w *world) { w.Deaf = true })
	if _, err := b.start(run(7, 0), "vni:1"); err == nil {
		t.Fatal("no error, and slurmctld does not take the letter")
	}
	e := b.entries()
	if len(e) != 1 || e[0].Ended.IsZero() || len(e[0].Nodes) != 2 {
		t.Errorf("%+v: want both nodes to confirm", e)
	}
	b.state("n1", id(7, 0))
	b.sweep()
	if e := b.entries(); len(e) != 1 || !slices.Equal(e[0].Nodes, []string{"n2"}) {
		t.Errorf("%+v: want the other node to confirm", e)
	}
	b.state("n2", id(7, 0))
	b.sweep()
	if e := b.entries(); len(e) > 0 {
		t.Errorf("%+v: want nothing", e)
	}
}

// No node of the job can know of it.
func TestAJobThatIsNotToldWaitsForNoNode(t *testing.T) {
	for name, fail := range map[string]func(*bench){
		"slurmctld does not have it": func(b *bench) { _, _ = b.reserve(run(7, 0), "pkey:1,vms:2,vfs:1") },
		"PrologSlurmctld is killed while it waits for the subnet manager": func(b *bench) {
			b.Subnet = killed{b.Subnet}
			defer func() { _ = recover() }()
			_, _ = b.start(run(7, 0), "pkey:1,vms:2,vfs:1")
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			s := withPKeys(b)
			fail(b)
			b.Subnet = s
			b.end(run(7, 0))
			b.sweep()
			if e := b.entries(); len(e) > 0 {
				t.Errorf("%+v: want nothing", e)
			}
		})
	}
}

// A killed subnet manager ends the process that asks it.
type killed struct{ SubnetManager }

func (killed) Join(context.Context, fabric.Tag, []fabric.GUID) error { panic("killed") }

func TestARepeatedCallThatFailsWaitsForTheNodesThatWereTold(t *testing.T) {
	b := newBench(t)
	s := withPKeys(b)
	b.mustStart(run(7, 0), "pkey:1,vms:2,vfs:1")
	s.down = errors.New("OpenSM does not answer")
	if _, err := b.reserve(run(7, 0), "pkey:1,vms:2,vfs:1"); err == nil {
		t.Fatal("no error, and the subnet manager does not answer")
	}
	if e := b.entries(); len(e) != 1 || !slices.Equal(e[0].Nodes, []string{"n1", "n2"}) {
		t.Errorf("%+v: want both nodes to confirm", e)
	}
}

// EpilogSlurmctld comes while PrologSlurmctld still asks the subnet manager.
func TestAJobThatHasEndedGetsNoLetter(t *testing.T) {
	b := newBench(t)
	b.Subnet = ending{withPKeys(b), b}
	if _, err := b.start(run(7, 0), "pkey:1,vms:2,vfs:1"); !errors.Is(err, ledger.ErrEnded) {
		t.Errorf("error %v", err)
	}
	if _, _, err := b.comment(run(7, 0)); err == nil {
		t.Error("its nodes have a letter")
	}
}

// An ending subnet manager takes so long that the job is cancelled.
type ending struct {
	SubnetManager
	b *bench
}

func (e ending) Join(ctx context.Context, _ fabric.Tag, _ []fabric.GUID) error {
	return e.b.Release(ctx, hook(run(7, 0)))
}

// A manager is a fabric manager that may be down.
type manager struct {
	sessions map[string]bool
	down     error
	asked    int                 // to release sessions, or to list them
	steps    map[string][]string // that have multicast addresses, by session
	looked   func()              // it has listed the steps of a session
}

func (*manager) Session(cluster string, job journal.ID) string { return cluster + "-" + job.String() }

func (m *manager) Reserve(_ context.Context, session string) (*fabric.Collectives, error) {
	if m.down != nil {
		return nil, m.down
	}
	m.sessions[session] = true
	return &fabric.Collectives{Session: session, Token: "token of " + session, Addrs: 23}, nil
}

func (m *manager) Release(_ context.Context, session string) error {
	m.asked++
	if m.down == nil {
		delete(m.sessions, session)
	}
	return m.down
}

func (m *manager) List(context.Context) (all []string, err error) {
	m.asked++
	for session := range m.sessions {
		all = append(all, session)
	}
	return all, m.down
}

func (m *manager) Steps(_ context.Context, session string) ([]string, error) {
	if m.looked != nil {
		m.looked()
	}
	return slices.Clone(m.steps[session]), m.down
}

func (m *manager) ReleaseStep(_ context.Context, session, step string) error {
	m.asked++
	if m.down == nil {
		m.steps[session] = slices.DeleteFunc(m.steps[session], func(s string) bool { return s == step })
	}
	return m.down
}

func (m *manager) Stale(cluster string, listed []string, live []journal.ID) (stale []string) {
	for _, session := range listed {
		if strings.HasPrefix(session, cluster+"-") && !slices.ContainsFunc(live, func(job journal.ID) bool { return m.Session(cluster, job) == session }) {
			stale = append(stale, session)
		}
	}
	return stale
}

func (m *manager) Missing(listed []string, live []fabric.Reservation) (missing []journal.ID) {
	for _, r := range live {
		if !slices.Contains(listed, r.Collectives.Session) {
			missing = append(missing, r.Job)
		}
	}
	return missing
}

func withCollectives(b *bench) *manager {
	m := &manager{sessions: map[string]bool{}, steps: map[string][]string{}}
	b.Fabric = m
	b.Site.Collectives = config.Collectives{URL: "https://fm", AddrsPerJob: 23, MinNodes: 2, Timeout: 1}
	return m
}

func TestCollectives(t *testing.T) {
	b := newBench(t)
	m := withCollectives(b)
	b.mustStart(run(7, 0), "vni:1")
	told, _, err := b.comment(run(7, 0))
	if err != nil || told.Collectives == nil || told.Collectives.Token != "token of c-7.0" || !m.sessions["c-7.0"] {
		t.Fatalf("%+v, %v, %v", told.Collectives, err, m.sessions)
	}
	if e := b.entries(); e[0].Reservation.Collectives.Token != "" {
		t.Error("an entry shows the token")
	}
	m.down = errors.New("does not answer")
	b.mustStart(run(8, 0), "vni:1")
	if told, _, err := b.comment(run(8, 0)); err != nil || told.Collectives != nil || len(b.warnings) != 1 {
		t.Errorf("%+v, %v, %q", told.Collectives, err, b.warnings)
	}
	b.end(run(7, 0))
	if _, err := b.Sweep(context.Background()); err == nil {
		t.Error("no error, and the fabric manager does not answer")
	}
	m.down = nil
	b.sweep()
	if m.sessions["c-7.0"] {
		t.Error("the ended job still has its multicast addresses")
	}
}

func TestSessionsAreCompared(t *testing.T) {
	b := newBench(t)
	m := withCollectives(b)
	b.mustStart(run(7, 0), "vni:1")
	m.sessions["c-5.0"], m.sessions["other-5.0"] = true, true
	b.sweep()
	if m.sessions["c-5.0"] || !m.sessions["other-5.0"] || !m.sessions["c-7.0"] {
		t.Errorf("left are %v", m.sessions)
	}
	if len(b.warnings) > 0 {
		t.Errorf("%q", b.warnings)
	}
	delete(m.sessions, "c-7.0")
	b.sweep()
	if len(b.warnings) != 1 || !strings.Contains(b.warnings[0], "job 7.0") {
		t.Errorf("%q", b.warnings)
	}
}

// An administrator takes url out of [fabric.collectives] while a job has a session.
func TestSessionsOfAFabricManagerThatIsNoMore(t *testing.T) {
	b := newBench(t)
	m := withCollectives(b)
	b.mustStart(run(7, 0), "vni:1")
	b.mustStart(run(8, 0), "vni:1")
	b.Fabric, b.Site.Collectives.URL = nil, ""
	b.end(run(7, 0))
	b.state("n1", id(7, 0))
	b.state("n2", id(7, 0))
	b.sweep()
	if e := b.entries(); len(e) != 1 || waiting(e) || len(b.warnings) != 1 || !strings.Contains(b.warnings[0], "session c-7.0") {
		t.Errorf("%+v, %q", e, b.warnings)
	}
	if news, err := b.Sweep(context.Background()); news > 0 || err != nil {
		t.Errorf("%d facts are new, and nothing happens: %v", news, err)
	}
	b.Fabric = m
	b.sweep()
	if m.sessions["c-7.0"] || !m.sessions["c-8.0"] {
		t.Errorf("the fabric manager is back, and has %v", m.sessions)
	}
}

func TestASilentFabricManagerIsAskedOnceASweep(t *testing.T) {
	b := newBench(t)
	m := withCollectives(b)
	for job := range uint32(3) {
		b.mustStart(run(7+job, 0), "vni:1")
		b.end(run(7+job, 0))
	}
	m.down, m.asked = context.DeadlineExceeded, 0
	if _, err := b.Sweep(context.Background()); err == nil || m.asked != 1 {
		t.Errorf("error %v; it was asked %d times", err, m.asked)
	}
}

// A hanging manager lists sessions, and removes none in time.
type hanging struct{ *manager }

func (m hanging) Release(context.Context, string) error {
	m.asked++
	return context.DeadlineExceeded
}

func TestAFabricManagerThatHangsIsAskedAboutOneStaleSession(t *testing.T) {
	b := newBench(t)
	m := withCollectives(b)
	b.mustStart(run(7, 0), "vni:1")
	m.sessions["c-4.0"], m.sessions["c-5.0"], m.sessions["c-6.0"] = true, true, true
	b.Fabric, m.asked = hanging{m}, 0
	if _, err := b.Sweep(t.Context()); !isSilence(err) || m.asked != 2 {
		t.Errorf("error %v; it was asked %d times, want 2: for the list, and about one session", err, m.asked)
	}
}

// A dying manager makes the session, and the answer is lost.
type dying struct{ *manager }

func (d dying) Reserve(ctx context.Context, session string) (*fabric.Collectives, error) {
	d.sessions[session] = true
	return nil, errors.New("the answer is lost")
}

func TestTheLedgerKnowsOfASessionFirst(t *testing.T) {
	b := newBench(t)
	m := withCollectives(b)
	b.Fabric = dying{m}
	b.mustStart(run(7, 0), "vni:1")
	e := b.entries()
	if len(e) != 1 || e[0].Reservation.Collectives == nil || e[0].Reservation.Collectives.Session != "c-7.0" {
		t.Fatalf("%+v", e)
	}
	b.end(run(7, 0))
	b.sweep()
	if len(m.sessions) > 0 {
		t.Errorf("left is %v", m.sessions)
	}
}
