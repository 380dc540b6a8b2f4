package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/ledger"
	"github.com/slurm-v/slurm-v/fabric/letter"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
)

// Reserve gives a job its tags before it starts, and writes the sealed reservation into its
// record. It may be repeated. If it fails, the job must not start: what it had got is being
// released, and its owner can read why in its record.
func (c *Controller) Reserve(ctx context.Context, h slurm.Hook, w fabric.Wish) (r fabric.Reservation, err error) {
	g := giving{c, h, c.readComment(ctx, h)}
	if r, err = g.reserve(ctx, w); err != nil {
		g.explain(ctx, err)
	}
	return r, err
}

// A giving is the work of giving one job its tags.
type giving struct {
	*Controller
	hook    slurm.Hook
	comment func() said // the job's AdminComment from before
}

func (g giving) reserve(ctx context.Context, w fabric.Wish) (r fabric.Reservation, err error) {
	key, err := g.key()
	if err != nil {
		return r, g.failed(err)
	}
	q, missing, err := requestOf(g.Site, g.Limits, g.hook, w)
	if err != nil {
		return r, g.failed(err)
	}
	if err := g.apartFromSwitch(ctx, q.Wants); err != nil {
		return r, g.failed(err)
	}
	if r, err = g.commit(ctx, q); err != nil {
		return r, hinted(err) // the ledger's words name the job
	}
	r, text, err := g.prepare(ctx, r, missing, key)
	if err != nil {
		g.giveUp(ctx, r.Job)
		return r, g.failed(err)
	}
	if err = g.tell(ctx, r.Job, text); err != nil {
		g.giveUp(ctx, r.Job)
		return r, g.failed(err)
	}
	return r, nil
}

// apartFromSwitch refuses VNIs that Slurm's own plugin gives to steps, which the job would share.
func (g giving) apartFromSwitch(ctx context.Context, wants []ledger.Want) error {
	var pools []fabric.Pool
	for _, want := range wants {
		if want.Pool.Kind == fabric.VNI && want.Count > 0 {
			pools = append(pools, want.Pool)
		}
	}
	if len(pools) == 0 {
		return nil
	}
	conf, err := g.Slurm.SwitchConf(ctx)
	if err != nil {
		return fmt.Errorf("ask which VNIs Slurm gives to steps: %w", err)
	}
	if err := fabric.ApartFromSwitch(pools, conf); err != nil {
		return fmt.Errorf("%w: %s", err, fabric.SwitchAdvice)
	}
	return nil
}

func (g giving) failed(err error) error {
	return fmt.Errorf("reserve tags for job %s: %w", g.hook.Name, err)
}

// hinted says what to do about an empty pool.
func hinted(err error) error {
	if errors.Is(err, ledger.ErrExhausted) {
		return fmt.Errorf("%w; submit again later, or ask the administrator: `slurmv fabric pool` says who has the tags", err)
	}
	return err
}

// A said is a job with its AdminComment. Reading it goes on while the ledger works.
type said struct {
	job slurm.NotedJob
	err error
}

// readComment begins to read, and returns the function that waits for the answer.
func (c *Controller) readComment(ctx context.Context, h slurm.Hook) func() said {
	answer := make(chan said, 1)
	go func() {
		job, err := c.Slurm.AdminComment(ctx, h.Record.Job)
		answer <- said{job, err}
	}()
	var s *said
	return func() said {
		if s == nil {
			got := <-answer
			s = &got
		}
		return *s
	}
}

// commit gets the tags from the ledger. If too few are free it sweeps, and waits as long as
// others are being given back.
func (g giving) commit(ctx context.Context, q ledger.Request) (r fabric.Reservation, err error) {
	deadline := g.Now().Add(g.cooling() + g.Patience)
	for {
		r, err = g.tryReserve(ctx, q, g.options())
		if !errors.Is(err, ledger.ErrExhausted) {
			return r, err
		}
		again, waitErr := g.awaitTags(ctx, q, err, deadline)
		if waitErr != nil {
			g.warn("look for tags that are free again: %v", waitErr)
		}
		if !again {
			break
		}
	}
	if g.Site.Exhausted == config.ExhaustedEmpty {
		o := g.options()
		o.EmptyIfExhausted = true
		return g.tryReserve(ctx, q, o)
	}
	return r, err
}

func (g giving) tryReserve(ctx context.Context, q ledger.Request, o ledger.Options) (r fabric.Reservation, err error) {
	err = g.with(ctx, func(l *ledger.Ledger) error {
		if err := g.reconcileOnce(ctx, l, true); err != nil {
			return err
		}
		if err := g.endOlder(l, q.Reservation.Job); err != nil {
			return err
		}
		r, err = l.Reserve(q, o, g.Now())
		return err
	})
	return r, err
}

// endOlder ends the earlier runs of a job that was requeued: their EpilogSlurmctld may have
// been killed.
func (g giving) endOlder(l *ledger.Ledger, job journal.ID) error {
	if job.Restart == 0 {
		return nil
	}
	entries, err := l.Entry(job.Job)
	for _, e := range entries {
		if err == nil && e.Ended.IsZero() && e.Reservation.Job.Restart < job.Restart {
			err = l.End(e.Reservation.Job, g.Now())
		}
	}
	return err
}

// awaitTags sweeps, and then waits until it is worth asking the ledger again. What is
// confirmed so late that it cannot cool before the deadline does not help.
func (g giving) awaitTags(ctx context.Context, q ledger.Request, exhausted error, deadline time.Time) (again bool, err error) {
	freed, err := g.sweepFor(ctx, exhausted, deadline.Add(-g.cooling()))
	if err != nil {
		return false, err
	}
	var pools []ledger.PoolState
	for _, want := range q.Wants {
		state, err := g.Pools(ctx, []fabric.Pool{want.Pool})
		if err != nil {
			return false, err
		}
		pools = append(pools, state...)
	}
	at, worth := nextTry(exhausted, pools, g.cooling(), g.Now(), deadline)
	if !worth {
		return freed > 0 && g.Now().Before(deadline), nil
	}
	err = sleep(ctx, at.Sub(g.Now()))
	return err == nil, err
}

// sweepFor looks for what frees tags of the exhausted pool, until it is too late. Only P_Keys
// wait for the subnet manager, which may not answer; the other jobs on which it fails need not
// be in the way of this one.
func (g giving) sweepFor(ctx context.Context, exhausted error, late time.Time) (news int, err error) {
	left := late.Sub(g.Now())
	if left <= 0 {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, left)
	defer cancel()
	var pool *ledger.ExhaustedError
	news, err = g.sweepNodes(ctx)
	if err != nil || !errors.As(exhausted, &pool) || pool.Kind != fabric.PKey {
		return news, err
	}
	forgotten, managersErr := g.sweepManagers(ctx)
	if managersErr != nil {
		g.warn("look for P_Keys that are free again: %v", managersErr)
	}
	return news + forgotten, nil
}

// Pools returns the state of pools.
func (c *Controller) Pools(ctx context.Context, pools []fabric.Pool) (states []ledger.PoolState, err error) {
	err = c.with(ctx, func(l *ledger.Ledger) error {
		states, err = l.Pools(pools, c.cooling(), c.Now())
		return err
	})
	return states, err
}

// prepare tells the managers of the tags, and returns the letter for the job's record.
func (g giving) prepare(ctx context.Context, r fabric.Reservation, missing []fabric.Grant, key letter.Key) (fabric.Reservation, string, error) {
	if err := g.join(ctx, r); err != nil {
		return r, "", err
	}
	var err error
	if r.Collectives, err = g.collectives(ctx, r, len(g.hook.Nodes)); err != nil {
		return r, "", err
	}
	r.Grants = append(r.Grants, missing...)
	text, err := letter.Seal(key, letter.ReservationSubject(g.Cluster, idOf(g.hook.Record)), r)
	return r, text, err
}

// tell writes the letter into the job's record. From then on the job's nodes can begin. The ledger
// knows that first: if this process dies before, the nodes have nothing to confirm.
func (g giving) tell(ctx context.Context, job journal.ID, text string) error {
	old := g.comment()
	if old.err != nil {
		return old.err
	}
	if err := g.with(ctx, func(l *ledger.Ledger) error { return l.Tell(job) }); err != nil {
		return err
	}
	return g.Slurm.SetAdminComment(ctx, old.job, withLetter(old.job.AdminComment, text))
}

// join makes the job's VFs members of its P_Keys.
func (g giving) join(ctx context.Context, r fabric.Reservation) error {
	ports := r.Ports()
	if g.Subnet == nil || len(ports) == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, managerTime(len(ports)))
	defer cancel()
	for _, pkey := range r.Tags(fabric.PKey) {
		if err := g.Subnet.Join(ctx, pkey, ports); err != nil {
			return fmt.Errorf("make its ports members of P_Key %s: %w", pkey.Text(fabric.PKey), err)
		}
	}
	return nil
}

// collectives reserves multicast addresses. Without them a job runs, only slower: what the
// fabric manager does not answer in time is a warning. The ledger knows of the session before
// the fabric manager does, so that a crash leaves none behind.
func (g giving) collectives(ctx context.Context, r fabric.Reservation, nodes int) (*fabric.Collectives, error) {
	site := g.Site.Collectives
	if g.Fabric == nil || told(r) || !wantsCollectives(site, r, nodes) {
		return r.Collectives, nil
	}
	asked := &fabric.Collectives{Session: g.Fabric.Session(r.Cluster, r.Job), URL: site.URL, Addrs: site.AddrsPerJob, MinNodes: site.MinNodes}
	if err := g.record(ctx, r.Job, asked); err != nil {
		return nil, err
	}
	got, err := g.Fabric.Reserve(ctx, asked.Session)
	if err != nil {
		g.warn("job %s starts without hardware collectives: %v", r.Job, err)
		return nil, nil
	}
	return got, g.record(ctx, r.Job, got)
}

// told reports whether the job has its token already.
func told(r fabric.Reservation) bool { return r.Collectives != nil && r.Collectives.Token != "" }

func (c *Controller) record(ctx context.Context, job journal.ID, to *fabric.Collectives) error {
	return c.with(ctx, func(l *ledger.Ledger) error { return l.SetCollectives(job, to) })
}

// giveUp ends a reservation whose job does not start. The members of a P_Key are still to be
// removed, which the sweep does.
func (g giving) giveUp(ctx context.Context, job journal.ID) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ledgerWait)
	defer cancel()
	if err := g.with(ctx, func(l *ledger.Ledger) error { return l.End(job, g.Now()) }); err != nil {
		g.warn("end the reservation of job %s, which does not start: %v", job, err)
	}
}

// explainWait bounds how long a failed call takes to say why.
const explainWait = 15 * time.Second

// explain shows the owner of a job why it does not start: on the terminal of srun or salloc,
// and in the job's record.
func (g giving) explain(ctx context.Context, why error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), explainWait)
	defer cancel()
	if err := g.Slurm.Notify(ctx, g.hook.Record.Job, "slurm-v: "+why.Error()); err != nil {
		g.warn("%v", err)
	}
	old := g.comment()
	if old.err != nil {
		return
	}
	if err := g.Slurm.SetAdminComment(ctx, old.job, withFailure(old.job.AdminComment, why.Error())); err != nil {
		g.warn("%v", err)
	}
}
