package ledger

import (
	"errors"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/journal"
)

// step lets something happen.
func (w *world) step() error {
	w.now = w.now.Add(time.Duration(w.random.Int64N(int64(15 * time.Second))))
	n := w.nodes[w.random.IntN(len(w.nodes))]
	action := w.random.IntN(44)
	if len(w.jobs) == 0 || action < 8 {
		return w.start()
	}
	j := w.jobs[len(w.jobs)-1-w.random.IntN(min(len(w.jobs), 6))]
	switch {
	case action < 12:
		w.use(j)
	case action < 19:
		return w.end(j)
	case action < 25:
		return w.undo(n, j)
	case action < 27:
		return w.leave(j)
	case action < 30:
		return w.sweep()
	case action < 32:
		return w.repeat(j)
	case action < 34:
		w.reboot(n)
	case action < 35:
		w.note("%s vanishes", n.name)
		n.up = false
	case action < 36:
		w.copy()
	case action < 37:
		return w.restore()
	case action < 38:
		w.reconfigure()
	case action < 39:
		return w.quarantine(j)
	case action < 40:
		return w.force(j)
	case action < 41:
		return w.forceUnknown()
	default:
		w.use(j)
	}
	return nil
}

// finish lets all jobs end and all nodes come back, and returns an error if a tag does not
// become free by that.
func (w *world) finish() error {
	w.calm = true
	for _, n := range w.nodes {
		if !n.up && w.oneIn(2) {
			w.reboot(n)
		}
		n.up = true
	}
	for _, j := range w.jobs {
		if err := w.end(j); err != nil {
			return err
		}
	}
	if err := errors.Join(w.sweep(), w.ask(), w.sweep(), w.forceQuarantined()); err != nil {
		return err
	}
	w.now = w.now.Add(w.cooling)
	return w.checkFree()
}

func (w *world) forceQuarantined() error {
	entries, err := w.m.entries()
	for _, e := range entries {
		if e.State == Quarantined {
			w.note("force %s", e.Reservation.Job)
			err = errors.Join(err, w.m.force(e.Reservation.Job, w.now))
		}
	}
	return err
}

func (w *world) checkFree() error {
	entries, err := w.m.entries()
	if err == nil && len(entries) > 0 {
		err = fmt.Errorf("entries are left: %+v", entries)
	}
	if err != nil {
		return err
	}
	if err := w.m.thaw(w.cooling, w.now); err != nil {
		return err
	}
	for _, b := range []bucket{tags, cooling} {
		for key := range w.m.store.(memory)[b] {
			return fmt.Errorf("%s %q is left", b, key)
		}
	}
	return nil
}

func run(seed uint64) error {
	w := newWorld(seed)
	for range 70 {
		err := w.step()
		if err == nil && w.oneIn(10) {
			err = w.m.check()
		}
		if err != nil {
			return fmt.Errorf("seed %d: %w\n%s", seed, err, strings.Join(w.history, "\n"))
		}
	}
	if err := w.finish(); err != nil {
		return fmt.Errorf("seed %d, at the end: %w\n%s", seed, err, strings.Join(w.history, "\n"))
	}
	return nil
}

// Whatever is lost, late or repeated, and whatever copy of the ledger is restored: no tag is
// given to a job before it is off all hardware and has cooled, and none is lost.
func TestNoTagIsGivenTooEarlyAndNoneIsLost(t *testing.T) {
	all, ctx := errgroup.WithContext(t.Context())
	all.SetLimit(runtime.GOMAXPROCS(0))
	for seed := range uint64(modelRuns) {
		all.Go(func() error {
			if ctx.Err() != nil {
				return nil
			}
			return run(seed)
		})
	}
	noError(t, all.Wait())
}

// The check of the test above finds what it looks for.
func TestTheModelNoticesReuse(t *testing.T) {
	vni := tag{fabric.VNI, 1030}
	for name, plant := range map[string]func(w *world, old *job){
		"on a node":                  func(w *world, old *job) { w.nodes[0].has[vni] = old.id },
		"at the subnet manager":      func(w *world, old *job) { w.members[vni] = old.id },
		"before it has cooled":       func(w *world, _ *job) { w.removed[vni] = w.now.Add(-w.cooling + 1) },
		"of a job that still has it": func(_ *world, old *job) { old.active = true },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(1)
			r := fabric.Reservation{Grants: []fabric.Grant{{Kind: fabric.VNI, Tags: []fabric.Tag{vni.number}}}}
			old := &job{id: journal.ID{Job: 1}, r: r}
			w.jobs = append(w.jobs, old)
			if err := w.checkUnused(&job{id: journal.ID{Job: 2}, r: r}); err != nil {
				t.Fatalf("before: %v", err)
			}
			plant(w, old)
			var twice *shared
			if err := w.checkUnused(&job{id: journal.ID{Job: 2}, r: r}); !errors.As(err, &twice) {
				t.Errorf("error = %v", err)
			}
		})
	}
}

// A job that nobody ends, and a tag that never cools, are leaks.
func TestTheModelNoticesLeaks(t *testing.T) {
	for name, plant := range map[string]func(w *world) error{
		"a job that nobody ends": func(w *world) error {
			_, err := w.m.reserve(request(id(7), Want{Pool: w.pools[0], Count: 1}), Options{}, w.now)
			return err
		},
		"a tag of nobody": func(w *world) error {
			return w.m.write(tags, tagKey(tag{fabric.VNI, 1030}), holding{Since: w.now})
		},
	} {
		t.Run(name, func(t *testing.T) {
			noError(t, newWorld(1).finish())
			w := newWorld(1)
			noError(t, plant(w))
			if w.finish() == nil {
				t.Error("nothing is left")
			}
		})
	}
}

// BenchmarkModel says how long the soak will take.
func BenchmarkModel(b *testing.B) {
	for seed := uint64(0); b.Loop(); seed++ {
		if err := run(seed); err != nil {
			b.Fatal(err)
		}
	}
}
