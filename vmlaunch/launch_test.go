package vmlaunch

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/durable"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmlaunch/plan/plantest"
	"github.com/slurm-v/slurm-v/vmstep"
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

// A job that is launched again while its earlier run is being reclaimed has no VMs: the launch
// waits until the reclaim is done.
func TestALaunchWaitsForAReclaim(t *testing.T) {
	for word, refused := range map[string]bool{"launch": true, "warm": true, "reclaim": false, "clean": false} {
		t.Run(word, func(t *testing.T) {
			s := openStore(stateIn(t.TempDir()), "n1")
			earlier, err := journal.Create(s.state, journal.ID{Job: 42}, journal.Header{Node: "n1"})
			if err != nil {
				t.Fatal(err)
			}
			sign(t, earlier, runAgent(t, word))
			job := plantest.Job()
			job.ID = journal.ID{Job: 42, Restart: 1}
			time.AfterFunc(100*time.Millisecond, func() { _ = earlier.Remove() })
			j, err := s.openJournal(t.Context(), job)
			if errors.Is(err, ErrAlreadyRunning) != refused || !refused && err != nil {
				t.Errorf("error = %v", err)
			}
			if err == nil {
				_ = j.Close()
			}
		})
	}
}

// runAgent starts a process with that first argument, as in "slurmv-agent clean", and returns
// its pid.
func runAgent(t *testing.T, word string) int {
	t.Helper()
	agent := exec.Command("sh", word)
	agent.Dir = t.TempDir()
	end, inErr := agent.StdinPipe()
	said, outErr := agent.StdoutPipe()
	write := os.WriteFile(filepath.Join(agent.Dir, word), []byte("echo runs; read end"), 0o600)
	if err := errors.Join(inErr, outErr, write, agent.Start()); err != nil {
		t.Fatal(err)
	}
	_, _ = io.ReadFull(said, make([]byte, len("runs"))) // the kernel knows its arguments now
	t.Cleanup(func() {
		_ = end.Close()
		_ = agent.Wait()
	})
	return agent.Process.Pid
}

// sign makes a process the journal's holder.
func sign(t *testing.T, j *journal.Journal, pid int) {
	t.Helper()
	file, err := os.OpenFile(filepath.Join(j.Dir(), "journal"), os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = file.Write(durable.Line(fmt.Appendf(nil, `{"op":"holder","holder":{"pid":%d,"start":1}}`, pid)))
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
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

// The channel to a VM ends before libvirt tells why.
func TestAVMThatEndsAtItsStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		set := machine.NewSet(plantest.On(t, plan.Hardware{}, 2), machine.StartStopwatch(time.Time{}), func(vmstep.Progress) {})
		explained := func(m *machine.Machine) string {
			ctx, cancel := withPatienceFor(t.Context(), m, time.Minute)
			defer cancel()
			return explainBoot(ctx, set.Plan, m, guest.ErrLost).Error()
		}
		go func() {
			time.Sleep(time.Second)
			set.Stopped(set.Machines[0].Plan.UUID, "crashed")
		}()
		if got := explained(set.Machines[0]); !strings.HasPrefix(got, "the VM crashed before its guest agent reported") {
			t.Errorf("of a VM that has ended: %s", got)
		}
		if got := explained(set.Machines[1]); got != guest.ErrLost.Error() {
			t.Errorf("of one that goes on: %s", got)
		}
	})
}
