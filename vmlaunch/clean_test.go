package vmlaunch

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/journal"
)

// A clean leaves the making of a template for all users alone, as long as it goes on, and does
// not wait for it.
func TestCleanBesideTheMakingOfATemplate(t *testing.T) {
	s := openStore(stateIn(t.TempDir()), "n1")
	making, err := journal.Create(s.state, siteWork, journal.Header{UID: siteUID, Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	ended, err := journal.Create(s.state, journal.ID{Job: 5}, journal.Header{Node: "n1"})
	if err != nil {
		t.Fatal(err)
	}
	_ = ended.Close()
	mustClean(t, s, journal.ID{Job: 5})
	_ = making.Close() // its process has died
	mustClean(t, s, siteWork)
}

// A clean ends when it has to. A job that it has not reached is named, and is for the next clean.
func TestACleanThatHasToEnd(t *testing.T) {
	network, servers := undoers[recordNetwork], undoers[recordServers]
	defer func() { undoers[recordNetwork], undoers[recordServers] = network, servers }()
	ctx, end := context.WithCancelCause(t.Context())
	var undone []string
	undoers[recordNetwork] = func(store, context.Context, *journal.Journal, string) error {
		undone = append(undone, "network")
		end(errors.New("a minute has passed"))
		return nil
	}
	undoers[recordServers] = func(store, context.Context, *journal.Journal, string) error {
		undone = append(undone, "servers")
		return nil
	}
	cfg := stateIn(t.TempDir())
	leaveBehind(t, cfg, map[uint32]string{4: recordServers, 5: recordNetwork})
	none := func(context.Context) (map[journal.ID]bool, error) { return nil, nil }
	cleaned, err := Clean(ctx, cfg, "n1", none)
	if !slices.Equal(cleaned, []journal.ID{{Job: 5}}) || !slices.Equal(undone, []string{"network"}) {
		t.Errorf("reclaimed %v: %v", cleaned, undone)
	}
	if err == nil || err.Error() != "job 4.0 was not reached: a minute has passed" {
		t.Error(err)
	}
	if cleaned, err = Clean(t.Context(), cfg, "n1", none); err != nil || !slices.Equal(cleaned, []journal.ID{{Job: 4}}) {
		t.Errorf("the next clean reclaimed %v: %v", cleaned, err)
	}
}

// A job that takes all the time leaves some to those that need nova.
func TestAStuckJobLeavesTimeForNova(t *testing.T) {
	network, servers := undoers[recordNetwork], undoers[recordServers]
	defer func() { undoers[recordNetwork], undoers[recordServers] = network, servers }()
	undoers[recordNetwork] = func(_ store, ctx context.Context, _ *journal.Journal, _ string) error {
		<-ctx.Done()
		return context.Cause(ctx)
	}
	undoers[recordServers] = func(_ store, ctx context.Context, _ *journal.Journal, _ string) error { return ctx.Err() }
	synctest.Test(t, func(t *testing.T) {
		cfg := stateIn(t.TempDir())
		leaveBehind(t, cfg, map[uint32]string{4: recordNetwork, 5: recordServers})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		cleaned, err := Clean(ctx, cfg, "n1", func(context.Context) (map[journal.ID]bool, error) { return nil, nil })
		if !slices.Equal(cleaned, []journal.ID{{Job: 5}}) || err == nil || !strings.Contains(err.Error(), "reclaim job 4.0: give back network x: it is not done after 30s") {
			t.Errorf("reclaimed %v: %v", cleaned, err)
		}
	})
}

// A job that takes all the time keeps no other job from being reclaimed.
func TestAStuckJobKeepsNoOtherFromBeingCleaned(t *testing.T) {
	network := undoers[recordNetwork]
	defer func() { undoers[recordNetwork] = network }()
	synctest.Test(t, func(t *testing.T) {
		ctx, end := context.WithCancelCause(t.Context())
		stuck := make(chan struct{})
		undoers[recordNetwork] = func(_ store, ctx context.Context, j *journal.Journal, _ string) error {
			if j.ID().Job != 4 {
				<-stuck
				end(errors.New("a minute has passed"))
				return nil
			}
			close(stuck)
			<-ctx.Done()
			return context.Cause(ctx)
		}
		cfg := stateIn(t.TempDir())
		leaveBehind(t, cfg, map[uint32]string{4: recordNetwork, 5: recordNetwork})
		cleaned, err := Clean(ctx, cfg, "n1", func(context.Context) (map[journal.ID]bool, error) { return nil, nil })
		if !slices.Equal(cleaned, []journal.ID{{Job: 5}}) || err == nil || !strings.Contains(err.Error(), "reclaim job 4.0: give back network x: a minute has passed") {
			t.Errorf("reclaimed %v: %v", cleaned, err)
		}
	})
}

// leaveBehind makes the journals of jobs that have ended, with a record of that kind in each.
func leaveBehind(t *testing.T, cfg config.Config, kinds map[uint32]string) {
	t.Helper()
	for id, kind := range kinds {
		j, err := journal.Create(cfg.StateDir("n1"), journal.ID{Job: id}, journal.Header{Node: "n1"})
		if err := errors.Join(err, j.Intend(kind, "x", nil), j.Close()); err != nil {
			t.Fatal(err)
		}
	}
}

func mustClean(t *testing.T, s store, want journal.ID) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	got, err := s.reclaimEnded(ctx, func(context.Context) (map[journal.ID]bool, error) { return nil, nil })
	if err != nil || !slices.Equal(got, []journal.ID{want}) {
		t.Errorf("reclaimed %v, %v; want %v", got, err, want)
	}
}

// nova may never delete the servers of a job. A clean, which slurmd kills after a minute, has the other jobs behind it then: those
// that need no nova come first, and those that do wait side by side, and not long.
func TestCleanOfJobsThatNeedNova(t *testing.T) {
	servers, network := undoers[recordServers], undoers[recordNetwork]
	defer func() { undoers[recordServers], undoers[recordNetwork] = servers, network }()
	var stuck sync.WaitGroup
	stuck.Add(2)
	given := make(chan struct{})
	undoers[recordNetwork] = func(store, context.Context, *journal.Journal, string) error { close(given); return nil }
	undoers[recordServers] = func(_ store, ctx context.Context, _ *journal.Journal, job string) error {
		if end, bounded := ctx.Deadline(); !bounded || time.Until(end) > cleanNovaPatience {
			t.Errorf("nova may take until %v", end)
		}
		select {
		case <-given:
		default:
			t.Errorf("job %s comes before a job that needs no nova", job)
		}
		stuck.Done()
		both := make(chan struct{})
		go func() { stuck.Wait(); close(both) }()
		select {
		case <-both:
			return errors.New("nova does not delete")
		case <-time.After(10 * time.Second):
			return errors.New("it waits for another job")
		}
	}
	cfg := stateIn(t.TempDir())
	leaveBehind(t, cfg, map[uint32]string{3: recordServers, 4: recordServers, 5: recordNetwork})
	cleaned, err := Clean(t.Context(), cfg, "n1", func(context.Context) (map[journal.ID]bool, error) { return nil, nil })
	if !slices.Equal(cleaned, []journal.ID{{Job: 5}}) {
		t.Errorf("reclaimed %v", cleaned)
	}
	if err == nil || strings.Count(err.Error(), "nova does not delete") != 2 {
		t.Error(err)
	}
}
