package manager

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/journal"
)

func TestSessions(t *testing.T) {
	for name, job := range map[string]journal.ID{"deep-4217": {Job: 4217}, "deep-4217.2": {Job: 4217, Restart: 2}} {
		if got := Session("deep", job); got != name {
			t.Errorf("session of %v = %s, want %s", job, got, name)
		}
		if got, ok := parseSession("deep", name); got != job || !ok {
			t.Errorf("%s is of job %v, %v", name, got, ok)
		}
	}
	for _, name := range []string{"", "deep", "deep-", "deep-x", "deep-007", "deep-7.0", "deep-7.1.2", "deep-7-1", "deep--7", "deep2-7", "dee-7", "deep-4294967296", "other-deep-7"} {
		if job, ok := parseSession("deep", name); ok {
			t.Errorf("%q is the session of %v", name, job)
		}
	}
}

func TestStale(t *testing.T) {
	listed := []string{"deep-1", "deep-2", "deep-2.1", "deep2-3", "deep-by-hand", "deep-4"}
	live := []journal.ID{{Job: 2, Restart: 1}, {Job: 4}, {Job: 5}}
	if diff := cmp.Diff([]string{"deep-1", "deep-2"}, Stale("deep", listed, live)); diff != "" {
		t.Errorf("stale sessions differ (-want +got):\n%s", diff)
	}
}

func TestMissing(t *testing.T) {
	with := func(job uint32) fabric.Reservation {
		id := journal.ID{Job: job}
		return fabric.Reservation{Job: id, Collectives: &fabric.Collectives{Session: Session("deep", id)}}
	}
	live := []fabric.Reservation{with(1), with(2), {Job: journal.ID{Job: 3}}, with(4)}
	want := []journal.ID{{Job: 2}, {Job: 4}}
	if diff := cmp.Diff(want, Missing([]string{"deep-1", "deep-9"}, live)); diff != "" {
		t.Errorf("missing sessions differ (-want +got):\n%s", diff)
	}
}
