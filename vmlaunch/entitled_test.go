package vmlaunch

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/journal"
)

// Where Slurm counts VFs, a job has no more of them than it was given.
func TestAdmitCountsVFs(t *testing.T) {
	cfg := config.Default()
	cfg.Slurm.GRES = true
	tests := map[string]struct {
		vfs  int
		mbps uint32
		want string
	}{
		"accepts what fits":                       {4, 200, ""},
		"refuses more VFs than the job has":       {3, 200, "2 VMs × 2 VFs (gres/vf) need 4; the job has 3"},
		"refuses more bandwidth than the job has": {4, 199, "2 VMs × 100 Mb/s of VF bandwidth (gres/vfbw) need 200; the job has 199"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			job := someJob()
			job.Spec.SRIOV.VFs = []jobspec.VF{{MinMbps: 100}, {}}
			job.VFs, job.VFMbps = tt.vfs, tt.mbps
			err := job.Admit(cfg)
			if (err != nil) != (tt.want != "") || err != nil && (!errors.Is(err, ErrBeyondAllocation) || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error = %v, want %q", err, tt.want)
			}
		})
	}
}

// Slurm 22.05 takes a step's restart count from the user's environment. So while VMs of
// a job live, no count gets it others.
func TestASecondSetOfVMsIsRefused(t *testing.T) {
	cfg := config.Default()
	cfg.Paths.State = t.TempDir()
	open := func(id journal.ID) (*journal.Journal, error) {
		job := someJob()
		job.ID = id
		return openJournal(t.Context(), cfg, job)
	}
	first, err := open(journal.ID{Job: 42})
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	for _, restart := range []uint32{0, 1} {
		if j, err := open(journal.ID{Job: 42, Restart: restart}); err == nil || !strings.Contains(err.Error(), "the VMs of job 42 are already running") {
			t.Errorf("restart %d of the same job: %v, %v", restart, j, err)
		}
	}
	another, err := open(journal.ID{Job: 43, Restart: 1})
	if err != nil {
		t.Fatalf("another job: %v", err)
	}
	_ = another.Close()
}

// The number of a process that has ended may be another's by the time it is killed.
func TestAProcessThatIsAnotherIsNotKilled(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := exec.Command("sleep", "1000")
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Process.Kill(); _ = c.Wait() }()
	for _, meant := range []bool{false, true} {
		if err := killProcess(ctx, c.Process.Pid, func() bool { return meant }); err != nil {
			t.Fatal(err)
		}
		if got := hasEnded(t, c.Process.Pid); got != meant {
			t.Errorf("it has ended: %v, and was meant: %v", got, meant)
		}
	}
}

// hasEnded reports whether a child is a zombie, or about to be one: it waits a moment.
func hasEnded(t *testing.T, pid int) bool {
	t.Helper()
	for range 20 {
		stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
		if err != nil {
			t.Fatal(err)
		}
		if _, rest, _ := strings.Cut(string(stat), ") "); strings.HasPrefix(rest, "Z") {
			return true
		}
		time.Sleep(10 * time.Millisecond)
	}
	return false
}

// A process is a domain's QEMU by one word of its command line.
func TestDomainOf(t *testing.T) {
	for words, want := range map[string]string{
		"qemu\x00-name\x00x\x00-uuid\x00" + someUUID + "\x00-S\x00": someUUID,
		"sh\x00x-uuid\x00" + someUUID + "\x00":                      "",
		"sh\x00-uuid=" + someUUID + "\x00":                          "",
		"":                                                          "",
	} {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "cmdline"), []byte(words), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := domainOf(dir); got != want {
			t.Errorf("domainOf(%q) = %q, want %q", words, got, want)
		}
	}
}

// Whatever a relay, which is the user's, asks for: a program is the owner's.
func TestProgramsAreTheOwners(t *testing.T) {
	plan := somePlan(t)
	plan.Owner.Groups = []Group{{"a", 6001}, {"b", 7001}}
	n := newNode(plan, nil, startStopwatch(time.Time{}), nil)
	h := guest.Header{Command: &guest.Command{UID: 0, GID: 0, Groups: []uint32{0, 27}}}
	if err := n.asOwner(&h); err != nil {
		t.Fatal(err)
	}
	want := guest.Command{UID: 6001, GID: 6001, Groups: []uint32{6001, 7001}}
	if diff := cmp.Diff(want, *h.Command); diff != "" {
		t.Errorf("the command differs (-want +got):\n%s", diff)
	}
}

// A VM runs as many programs as the site allows, and none when the job ends.
func TestProgramsOfAVMAreCounted(t *testing.T) {
	plan := somePlan(t)
	plan.Programs = 2
	n := newNode(plan, nil, startStopwatch(time.Time{}), nil)
	m, other := n.machines[0], n.machines[1]
	for range plan.Programs {
		if err := n.beginProgram(m); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.beginProgram(m); err == nil || !strings.Contains(err.Error(), "limits.programs_per_vm") {
		t.Errorf("one more: %v", err)
	}
	if err := n.beginProgram(other); err != nil {
		t.Errorf("in another VM: %v", err)
	}
	n.endProgram(m)
	if err := n.beginProgram(m); err != nil {
		t.Errorf("when one has ended: %v", err)
	}
	over, cancel := context.WithCancel(t.Context())
	cancel()
	n.End(over)
	n.endProgram(m)
	if err := n.beginProgram(m); err == nil || !strings.Contains(err.Error(), "are ending") {
		t.Errorf("when the job ends: %v", err)
	}
}
