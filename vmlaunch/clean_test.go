package vmlaunch

import (
	"context"
	"slices"
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
