package vmlaunch

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmlaunch/plan/plantest"
)

// Slurm 22.05 takes a step's restart count from the user's environment. So while VMs of
// a job live, no count gets it others.
func TestASecondSetOfVMsIsRefused(t *testing.T) {
	cfg := config.Default()
	cfg.Paths.State = t.TempDir()
	open := func(id journal.ID) (*journal.Journal, error) {
		job := plantest.Job()
		job.ID = id
		return openStore(cfg, job.Node).openJournal(t.Context(), job)
	}
	first, err := open(journal.ID{Job: 42})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	for _, restart := range []uint32{0, 1} {
		if j, err := open(journal.ID{Job: 42, Restart: restart}); !errors.Is(err, ErrAlreadyRunning) || !strings.Contains(err.Error(), "the VMs of job 42 are already running") {
			t.Errorf("restart %d of the same job: %v, %v", restart, j, err)
		}
	}
	another, err := open(journal.ID{Job: 43, Restart: 1})
	if err != nil {
		t.Fatalf("another job: %v", err)
	}
	_ = another.Close()
}

func TestDecideAdmitsTheJob(t *testing.T) {
	cfg, job := config.Default(), plantest.Job()
	cfg.Paths.State = t.TempDir()
	job.UID, job.GID = uint32(os.Getuid()), uint32(os.Getgid())
	if _, err := decide(t.Context(), cfg, job); err != nil {
		t.Fatalf("a job that has what it asks for: %v", err)
	}
	job.CPUs = 1
	if _, err := decide(t.Context(), cfg, job); !errors.Is(err, plan.ErrBeyondAllocation) {
		t.Errorf("error = %v, want %v", err, plan.ErrBeyondAllocation)
	}
}
