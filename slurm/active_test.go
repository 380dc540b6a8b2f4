package slurm

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A SlurmUser that is not root sees jobs in hidden partitions only with --all.
func TestActiveRunsAreAll(t *testing.T) {
	dir := t.TempDir()
	const script = "#!/bin/sh\necho '   7   0'\ncase \"$*\" in *--all*) echo '   8   1';; esac\n"
	if err := os.WriteFile(filepath.Join(dir, "squeue"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := Client{Bin: dir}.ActiveRuns(context.Background())
	if want := []RunID{{7, 0}, {8, 1}}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; want %v", got, err, want)
	}
}
