package slurm

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
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

func TestActiveSteps(t *testing.T) {
	dir := t.TempDir()
	const script = "#!/bin/sh\ncase \"$*\" in *--all*--steps*) printf '%s\\n' '  7|  7.batch' '7|7.0' '7|7.12' '9|8_2.3' '11|10+1.0' '11|11.4+1';; esac\n"
	if err := os.WriteFile(filepath.Join(dir, "squeue"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	got, err := ActiveSteps(t.Context(), Client{Bin: dir})
	if diff := cmp.Diff(Steps{7: {"batch", "0", "12"}, 9: {"3"}, 11: {"0", "4"}}, got); diff != "" || err != nil {
		t.Errorf("error %v, steps differ (-want +got):\n%s", err, diff)
	}
	for _, text := range []string{"7\n", "7|\n", "7|batch\n", "x|7.0\n", "|\n", "7|7.0\n\n"} {
		if got, err := parseActiveSteps(text); err == nil {
			t.Errorf("%q is %v", text, got)
		}
	}
}
