package vmlaunch

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

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
	for id, kind := range map[uint32]string{3: recordServers, 4: recordServers, 5: recordNetwork} {
		j, err := journal.Create(cfg.StateDir("n1"), journal.ID{Job: id}, journal.Header{Node: "n1"})
		if err := errors.Join(err, j.Intend(kind, "x", nil), j.Close()); err != nil {
			t.Fatal(err)
		}
	}
	cleaned, err := Clean(t.Context(), cfg, "n1", func(context.Context) (map[journal.ID]bool, error) { return nil, nil })
	if !slices.Equal(cleaned, []journal.ID{{Job: 5}}) {
		t.Errorf("reclaimed %v", cleaned)
	}
	if err == nil || strings.Count(err.Error(), "nova does not delete") != 2 {
		t.Error(err)
	}
}
