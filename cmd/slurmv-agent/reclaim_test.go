package main

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vmlaunch"
)

func TestOnlyWhatHarmsOthersDrains(t *testing.T) {
	files, vm := fmt.Errorf("job 7.0: %w: a directory", vmlaunch.ErrFiles), errors.New("a VM has not ended")
	tests := map[string]struct {
		failed []error
		want   bool
	}{
		"nothing":            {nil, false},
		"files":              {[]error{files, files}, false},
		"a VM":               {[]error{vm}, true},
		"files and a VM":     {[]error{files, vm}, true},
		"what is stuck":      {[]error{errStuck}, true},
		"files of two tries": {[]error{fmt.Errorf("node n1: %w", files)}, false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := mustDrain(tt.failed); got != tt.want {
				t.Errorf("drain = %v", got)
			}
		})
	}
}

func TestAReclaimThatIsStuckIsNotWaitedFor(t *testing.T) {
	hang := make(chan error)
	defer close(hang)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	failed := within(ctx, 0, []journal.ID{{Job: 7}}, func(journal.ID) error { return <-hang })
	if len(failed) != 1 || !errors.Is(failed[0], errStuck) {
		t.Errorf("errors %v, want %v", failed, errStuck)
	}
}

func TestAllJournalsAreReclaimed(t *testing.T) {
	broken := errors.New("it is broken")
	var seen []journal.ID
	ids := []journal.ID{{Job: 7}, {Job: 7, Restart: 1}}
	failed := within(t.Context(), stuckAfter, ids, func(id journal.ID) error { seen = append(seen, id); return broken })
	if len(seen) != 2 || len(failed) != 2 || !errors.Is(failed[1], broken) {
		t.Errorf("reclaimed %v, errors %v", seen, failed)
	}
}
