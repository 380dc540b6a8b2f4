package vmlaunch

import (
	"errors"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/journal"
)

func TestLeftSaysWhatHoldsUpAConfirmation(t *testing.T) {
	tests := map[string]struct {
		kind string // of the record that is left; "" for none
		want string // "" for nothing
	}{
		"nothing":       {"", ""},
		"files":         {recordFiles, ""},
		"a VM":          {recordDomain, "job 42.7 still has domain x"},
		"VFs":           {recordVFs, "job 42.7 still has vfs x"},
		"shared memory": {recordRegion, "job 42.7 still has ivshmem x"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg, id := stateIn(t.TempDir()), journal.ID{Job: 42, Restart: 7} // the user's count
			j, err := journal.Create(cfg.StateDir("n1"), id, journal.Header{Node: "n1"})
			if err == nil && tt.kind != "" {
				err = j.Intend(tt.kind, "x", nil)
			}
			if err = errors.Join(err, j.Close()); err != nil {
				t.Fatal(err)
			}
			if err := Left(cfg, "n1", 42); (err == nil) != (tt.want == "") || err != nil && !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
			if err := Left(cfg, "n1", 420); err != nil {
				t.Errorf("another job: %v", err)
			}
		})
	}
}
