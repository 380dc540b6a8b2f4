package tags

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/slurm-v/slurm-v/fabric/cxi"
	"github.com/slurm-v/slurm-v/fabric/node"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
)

// on makes job 7 on a node with this state and reason, and says what scontrol was told.
func on(t *testing.T, standing string) (j Job, told func() string) {
	t.Helper()
	bin := t.TempDir()
	script := fmt.Sprintf("#!/bin/sh\nif test \"$2\" = show; then echo 'NodeName=n1 %s'; else echo \"$*\" >> '%s/told'; fi\n", standing, bin)
	if err := os.WriteFile(filepath.Join(bin, "scontrol"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	return Job{Client: slurm.Client{Bin: bin}, Node: "n1", Number: 7}, func() string {
		text, _ := os.ReadFile(filepath.Join(bin, "told"))
		return string(text)
	}
}

// Two jobs' services are in use, and those go first for which the node was drained.
func TestTheNodeIsDrainedAgainForTheServicesThatStay(t *testing.T) {
	const ofAnother = "State=IDLE+DRAIN ThreadsPerCore=1 Reason=slurm-v: job 9's VNI 1025 is still in use on cxi0 [root@2026-01-02]"
	busy := fmt.Errorf("%w: %w", node.ErrServices, &cxi.BusyError{Job: journal.ID{Job: 7}})
	mine := (&cxi.BusyError{Job: journal.ID{Job: 7}}).Error()
	reason := ""
	for _, step := range []struct{ name, standing, reason, told string }{
		{"drained for another job's", ofAnother, "", ""},
		{"resumed when those have gone", "State=IDLE", mine, "update nodename=n1 state=drain reason=slurm-v: " + mine + "\n"},
		{"resumed by an administrator", "State=IDLE", mine, ""},
	} {
		j, told := on(t, step.standing)
		j.drainOnce(t.Context(), &reason)(busy)
		if reason != step.reason || told() != step.told {
			t.Errorf("%s: reason %q; scontrol was told %q", step.name, reason, told())
		}
	}
}

// The reason that drain returns is the one for which Linger makes the node resume.
func TestWhatDrainsANode(t *testing.T) {
	busy := fmt.Errorf("%w: %w", node.ErrServices, &cxi.BusyError{Job: journal.ID{Job: 7}})
	busy7 := (&cxi.BusyError{Job: journal.ID{Job: 7}}).Error()
	tests := map[string]struct {
		standing string
		left     error
		reason   string
		told     string
	}{
		"services that are in use":          {"State=IDLE", busy, busy7, "update nodename=n1 state=drain reason=slurm-v: " + busy7 + "\n"},
		"services for some other reason":    {"State=IDLE", node.ErrServices, "job 7's CXI services could not be removed", "update nodename=n1 state=drain reason=slurm-v: job 7's CXI services could not be removed\n"},
		"nothing but a confirmation":        {"State=IDLE", errors.New("slurmctld does not answer"), "", ""},
		"not where an administrator did so": {"State=IDLE+DRAIN ThreadsPerCore=1 Reason=bad disk [root@2026-01-02]", busy, "", ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			j, told := on(t, tt.standing)
			reason, err := j.drain(t.Context(), tt.left)
			if err != nil || reason != tt.reason || told() != tt.told {
				t.Errorf("reason %q, %v; scontrol was told %q", reason, err, told())
			}
		})
	}
}
