package vmlaunch

import (
	"context"
	"errors"
	"testing"

	"github.com/slurm-v/slurm-v/journal"
)

func TestAReclaimThatIsStuckIsNotWaitedFor(t *testing.T) {
	hang := make(chan error)
	defer close(hang)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	failed := reclaimEach(ctx, 0, []journal.ID{{Job: 7}}, func(journal.ID) error { return <-hang })
	if len(failed) != 1 || !errors.Is(failed[0], errStuck) {
		t.Errorf("errors %v, want %v", failed, errStuck)
	}
}

func TestAllJournalsAreReclaimed(t *testing.T) {
	broken := errors.New("it is broken")
	var seen []journal.ID
	ids := []journal.ID{{Job: 7}, {Job: 7, Restart: 1}}
	failed := reclaimEach(t.Context(), stuckAfter, ids, func(id journal.ID) error { seen = append(seen, id); return broken })
	if len(seen) != 2 || len(failed) != 2 || !errors.Is(failed[1], broken) {
		t.Errorf("reclaimed %v, errors %v", seen, failed)
	}
}
