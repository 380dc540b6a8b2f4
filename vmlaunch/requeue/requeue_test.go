package requeue

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vfpool"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// squeueSays makes a client whose squeue prints the line.
func squeueSays(t *testing.T, line string) slurm.Client {
	t.Helper()
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "squeue"), []byte("#!/bin/sh\necho '"+line+"'\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return slurm.Client{Bin: bin}
}

// Whether a job goes elsewhere is Slurm's word, and the site's. That one does is not shown
// here, as it needs root.
func TestWhoStays(t *testing.T) {
	const record = "7|7|N/A|1000|1000|%d|1|%d|%d|RUNNING|n1"
	noFit := fmt.Errorf("VFs: %w", vfpool.ErrNoFit)
	other := errors.New("the image is gone")
	tests := map[string]struct {
		off                      bool
		cause                    error
		restarts, batch, requeue int
		want                     string
	}{
		"another cause":          {cause: other, batch: 1, requeue: 1, want: "the image is gone"},
		"a site that allows not": {cause: noFit, off: true, batch: 1, requeue: 1, want: noFit.Error()},
		"a job of salloc":        {cause: noFit, want: "; it is not sent to other nodes, as it was not submitted by sbatch --requeue"},
		"with --no-requeue":      {cause: noFit, batch: 1, want: "; it is not sent to other nodes, as it was not submitted by sbatch --requeue"},
		"too often":              {cause: noFit, batch: 1, requeue: 1, restarts: 3, want: "; it has been sent to other nodes 3 times and is not again"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := squeueSays(t, fmt.Sprintf(record, tt.restarts, tt.batch, tt.requeue))
			cfg := config.Config{}
			cfg.VF.Requeue = !tt.off
			err := Elsewhere(t.Context(), c, cfg, plan.Job{ID: journal.ID{Job: 7}, Node: "n1"}, tt.cause)
			if !errors.Is(err, tt.cause) || !strings.HasSuffix(err.Error(), tt.want) {
				t.Errorf("error = %v, want %s", err, tt.want)
			}
		})
	}
	if err := refusal(slurm.Job{Batch: true, Requeue: true, Restarts: 2}, noFit); err != nil {
		t.Errorf("a job that may go stays: %v", err)
	}
}

func TestSlurmThatDoesNotAnswer(t *testing.T) {
	cfg := config.Config{}
	cfg.VF.Requeue = true
	err := Elsewhere(context.Background(), squeueSays(t, ""), cfg, plan.Job{ID: journal.ID{Job: 7}}, vfpool.ErrNoFit)
	if !errors.Is(err, vfpool.ErrNoFit) || !strings.Contains(err.Error(), "squeue does not list it") {
		t.Errorf("error = %v", err)
	}
}
