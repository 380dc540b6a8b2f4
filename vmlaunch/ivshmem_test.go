package vmlaunch

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/ivshmem"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmlaunch/plan/plantest"
	"github.com/slurm-v/slurm-v/vmstep"
)

// aJob is the VMs of a job that is about to lease its regions. They are in /dev/shm, under
// names that nobody else's have.
func aJob(t *testing.T, cfg config.Config, number uint32, shared jobspec.IVShmem) *VMs {
	t.Helper()
	job := plantest.Job()
	job.ID.Job, job.Spec.IVShmem = number, shared
	me := owner.Owner{Name: "a", UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}
	p, err := plan.New(cfg, job, me, plan.Hardware{Accel: config.AccelTCG, NUMA: -1})
	if err != nil {
		t.Fatal(err)
	}
	j, err := journal.Create(cfg.StateDir(p.Job.Node), p.Job.ID, journal.Header{UID: me.UID, GID: me.GID, Node: p.Job.Node})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	v := newVMs(openStore(cfg, p.Job.Node), p, Slurmctld{}, j, machine.StartStopwatch(time.Time{}), func(vmstep.Progress) {})
	t.Cleanup(func() {
		v.close()
		for _, file := range regionFiles(v) {
			os.Remove(filepath.Join(ivshmem.Dir, file))
		}
	})
	return v
}

func stateIn(dir string) config.Config {
	cfg := config.Default()
	cfg.Paths.State = filepath.Join(dir, "%n")
	return cfg
}

// regionFiles are those of the node's regions that exist.
func regionFiles(n *VMs) (files []string) {
	for _, r := range n.shared.regions {
		if _, err := os.Lstat(filepath.Join(ivshmem.Dir, r.Name)); err == nil {
			files = append(files, r.Name)
		}
	}
	return files
}

// Whenever the agent dies, what it has made is in the journal, and reclaim finds it.
func TestRegionsAreReclaimedWhateverWasDone(t *testing.T) {
	tests := map[string]struct {
		before func(*testing.T, *VMs, config.Config)
		files  int
	}{
		"only leased": {func(*testing.T, *VMs, config.Config) {}, 0},
		"one made": {func(t *testing.T, n *VMs, cfg config.Config) {
			_, err := ivshmem.Open(cfg.StateDir("n2"), "n2").Create(t.Context(), n.shared.regions[0], n.Plan.Owner.IDs(), -1)
			if err != nil {
				t.Fatal(err)
			}
		}, 1},
		"one half made": {func(t *testing.T, n *VMs, _ config.Config) {
			if err := os.WriteFile(filepath.Join(ivshmem.Dir, n.shared.regions[1].Name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, 1},
		"all made": {func(t *testing.T, n *VMs, cfg config.Config) {
			if err := n.shared.make(t.Context()); err != nil {
				t.Fatal(err)
			}
		}, 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := stateIn(t.TempDir())
			n := aJob(t, cfg, 42, jobspec.IVShmem{Devices: 2, SizeMiB: 1})
			if err := n.shared.lease(t.Context()); err != nil {
				t.Fatal(err)
			}
			tt.before(t, n, cfg)
			if files := regionFiles(n); len(files) != tt.files {
				t.Errorf("files %q, want %d", files, tt.files)
			}
			if err := n.journal.Close(); err != nil { // as a crash does
				t.Fatal(err)
			}
			for range 2 {
				if err := Reclaim(t.Context(), cfg, "n2", n.Plan.Job.ID); err != nil {
					t.Fatal(err)
				}
			}
			if files := regionFiles(n); files != nil {
				t.Errorf("left: %q", files)
			}
		})
	}
}

// The journal says where the huge pages were, whatever the configuration says by now.
func TestReclaimFindsHugePages(t *testing.T) {
	cfg := stateIn(t.TempDir())
	n := aJob(t, cfg, 42, jobspec.IVShmem{Devices: 1, SizeMiB: 2})
	on := ivshmem.Open(cfg.StateDir("n2"), "n2")
	r := on.New(n.Plan.Job.ID, 0, 2<<20)
	r.Huge = t.TempDir()
	n.shared.regions = append(n.shared.regions, r)
	if err := errors.Join(n.journal.Intend(recordRegion, r.Name, r), n.shared.make(t.Context())); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(r.Huge, r.Name)
	if to, err := os.Readlink(filepath.Join(ivshmem.Dir, r.Name)); err != nil || to != file {
		t.Errorf("the region is at %q, %v; want %s", to, err, file)
	}
	if err := n.store.reclaim(t.Context(), n.journal); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) || regionFiles(n) != nil {
		t.Errorf("left: %v, %q", err, regionFiles(n))
	}
}

func TestRegionsStayWhileAVMMayRun(t *testing.T) {
	cfg := stateIn(t.TempDir())
	n := aJob(t, cfg, 42, jobspec.IVShmem{Devices: 1, SizeMiB: 1})
	if err := errors.Join(n.shared.lease(t.Context()), n.shared.make(t.Context()), n.journal.Intend(recordDomain, n.Plan.VMs[0].UUID, nil)); err != nil {
		t.Fatal(err)
	}
	if err := n.store.removeRegion(t.Context(), n.journal, n.shared.regions[0].Name); err == nil || len(regionFiles(n)) != 1 {
		t.Errorf("error = %v, files %q", err, regionFiles(n))
	}
	if err := n.store.reclaim(t.Context(), n.journal); err != nil || len(regionFiles(n)) != 0 {
		t.Errorf("error = %v, files %q", err, regionFiles(n))
	}
}

// A region's owner must not be able to keep a node from becoming clean.
func TestReclaimOfARegionThatItsOwnerReplaced(t *testing.T) {
	cfg := stateIn(t.TempDir())
	n := aJob(t, cfg, 42, jobspec.IVShmem{Devices: 1, SizeMiB: 1})
	if err := errors.Join(n.shared.lease(t.Context()), n.shared.make(t.Context())); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(ivshmem.Dir, n.shared.regions[0].Name)
	if err := errors.Join(os.Remove(path), os.Symlink("/etc/hostname", path)); err != nil {
		t.Fatal(err)
	}
	if err := n.store.reclaim(t.Context(), n.journal); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(path); err != nil || len(text) == 0 {
		t.Errorf("%q, %v", text, err)
	}
}

func TestRegionsOfAllJobsAreLimited(t *testing.T) {
	cfg := stateIn(t.TempDir())
	cfg.Limits.IVShmemPerNode = 3
	first, second := aJob(t, cfg, 42, jobspec.IVShmem{Devices: 2, SizeMiB: 1}), aJob(t, cfg, 43, jobspec.IVShmem{Devices: 1, SizeMiB: 2})
	if err := first.shared.lease(t.Context()); err != nil {
		t.Fatal(err)
	}
	err := second.shared.lease(t.Context())
	if want := "the jobs on node n2 would have 4M of shared memory (--ivshmem), and this site allows 3M"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error = %v, want %q", err, want)
	}
	if err := errors.Join(second.store.reclaim(t.Context(), second.journal), first.store.reclaim(t.Context(), first.journal)); err != nil {
		t.Fatal(err)
	}
	if third := aJob(t, cfg, 44, jobspec.IVShmem{Devices: 1, SizeMiB: 2}); third.shared.lease(t.Context()) != nil {
		t.Error("what was given back still counts")
	}
}

func TestWipeOfADevice(t *testing.T) {
	cfg := stateIn(t.TempDir())
	n := aJob(t, cfg, 42, jobspec.IVShmem{Devices: 2, SizeMiB: 1})
	if err := errors.Join(n.shared.lease(t.Context()), n.shared.make(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, r := range n.shared.regions {
		if err := os.WriteFile(filepath.Join(ivshmem.Dir, r.Name), []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.shared.wipe(1); err != nil {
		t.Fatal(err)
	}
	for k, want := range []string{"secret", "\x00\x00\x00\x00\x00\x00"} {
		if text, _ := os.ReadFile(filepath.Join(ivshmem.Dir, n.shared.regions[k].Name)); string(text) != want {
			t.Errorf("device %d has %q, want %q", k, text, want)
		}
	}
	for _, k := range []int{-1, 2} {
		if n.shared.wipe(k) == nil {
			t.Errorf("device %d was wiped", k)
		}
	}
	if got := n.Plan.RegionSize(); got != 1<<20 {
		t.Errorf("size %d", got)
	}
}

func TestCleanRemovesRegionsWithoutAJournal(t *testing.T) {
	cfg := stateIn(t.TempDir())
	lost, kept := aJob(t, cfg, 42, jobspec.IVShmem{Devices: 2, SizeMiB: 1}), aJob(t, cfg, 43, jobspec.IVShmem{Devices: 1, SizeMiB: 1})
	for _, n := range []*VMs{lost, kept} {
		if err := errors.Join(n.shared.lease(t.Context()), n.shared.make(t.Context())); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(lost.journal.Dir()); err != nil {
		t.Fatal(err)
	}
	if err := kept.store.releaseOrphanRegions(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left, has := regionFiles(lost), regionFiles(kept); len(left) != 0 || len(has) != 1 {
		t.Errorf("left: %q; of the other job: %q", left, has)
	}
}

// Anybody can make files that look like regions, and hold on to them. It is no error, and
// keeps neither other regions nor jobs from being given back.
func TestCleanInSpiteOfJunk(t *testing.T) {
	cfg := stateIn(t.TempDir())
	cfg.Paths.Run = filepath.Join(t.TempDir(), "%n")
	lost, ended := aJob(t, cfg, 42, jobspec.IVShmem{Devices: 1, SizeMiB: 1}), aJob(t, cfg, 43, jobspec.IVShmem{Devices: 1, SizeMiB: 1})
	for _, n := range []*VMs{lost, ended} {
		if err := errors.Join(n.shared.lease(t.Context()), n.shared.make(t.Context()), n.journal.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(lost.journal.Dir()); err != nil {
		t.Fatal(err)
	}
	junk := leasedJunk(t, cfg)
	cleaned, err := Clean(t.Context(), cfg, "n2", func(context.Context) (map[journal.ID]bool, error) { return nil, nil })
	if err != nil || len(cleaned) != 1 || cleaned[0] != ended.Plan.Job.ID {
		t.Errorf("cleaned %v, error %v", cleaned, err)
	}
	if _, err := os.Lstat(junk); err == nil || len(regionFiles(lost)) != 0 || len(regionFiles(ended)) != 0 {
		t.Errorf("left: %v, %q, %q", junk, regionFiles(lost), regionFiles(ended))
	}
}

// leasedJunk is a file like a region, with a lease: what opens it has to wait.
func leasedJunk(t *testing.T, cfg config.Config) (path string) {
	t.Helper()
	r := ivshmem.Open(cfg.StateDir("n2"), "n2").New(journal.ID{Job: 1}, 0, 0)
	path = filepath.Join(ivshmem.Dir, r.Name)
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close(); os.Remove(path) })
	if os.Getuid() == 0 {
		err = file.Chown(hostileUser, hostileUser)
	}
	if _, lease := unix.FcntlInt(file.Fd(), unix.F_SETLEASE, unix.F_WRLCK); errors.Join(err, lease) != nil {
		t.Fatal(err, lease)
	}
	return path
}

// On Slurm 22.05 the restart count in a journal is the user's word.
func TestCleanLeavesTheVMsOfARunningJobAlone(t *testing.T) {
	tests := map[string]struct {
		live uint32 // the restart count of the job that runs; the journal's is 1
		dead bool   // the journal's agent
		want int    // how many journals are cleaned
	}{
		"the journal's restart count":                   {live: 1},
		"another restart count":                         {live: 2},
		"what an earlier run of the job has left":       {live: 2, dead: true, want: 1},
		"the journal's count, though its agent is dead": {live: 1, dead: true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := stateIn(t.TempDir())
			cfg.Paths.Run = filepath.Join(t.TempDir(), "%n")
			vms := aJob(t, cfg, 43, jobspec.IVShmem{})
			if tt.dead {
				if err := vms.journal.Close(); err != nil {
					t.Fatal(err)
				}
			}
			live := map[journal.ID]bool{{Job: 43, Restart: tt.live}: true}
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // a reclaim would wait for this process
			defer cancel()
			cleaned, err := Clean(ctx, cfg, "n2", func(context.Context) (map[journal.ID]bool, error) { return live, nil })
			if err != nil || len(cleaned) != tt.want {
				t.Errorf("cleaned %v, want %d, error %v", cleaned, tt.want, err)
			}
		})
	}
}

// One part of clean that fails keeps it from no other.
func TestCleanDoesEverythingThoughSomethingFails(t *testing.T) {
	cfg := stateIn(t.TempDir())
	cfg.Paths.Run = filepath.Join(t.TempDir(), "%n")
	ended := aJob(t, cfg, 43, jobspec.IVShmem{})
	if err := errors.Join(ended.journal.Close(), os.WriteFile(filepath.Join(cfg.StateDir("n2"), "templates"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	cleaned, err := Clean(t.Context(), cfg, "n2", func(context.Context) (map[journal.ID]bool, error) { return nil, nil })
	if err == nil || !strings.Contains(err.Error(), "templates") || len(cleaned) != 1 {
		t.Errorf("cleaned %v, error %v", cleaned, err)
	}
}

// Tags and the node wait for Clean, and nobody waits for files of ended jobs.
func TestCleanLeavesTheTrashForLater(t *testing.T) {
	cfg := stateIn(t.TempDir())
	cfg.Paths.Run = filepath.Join(t.TempDir(), "%n")
	file := filepath.Join(cfg.StateDir("n2"), "trash", "large")
	if err := errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	_, err := Clean(t.Context(), cfg, "n2", func(context.Context) (map[journal.ID]bool, error) { return nil, nil })
	if err != nil || !TrashLeft(cfg, "n2") {
		t.Errorf("trash left: %v, error %v", TrashLeft(cfg, "n2"), err)
	}
	EmptyTrash(t.Context(), cfg, "n2", time.Minute)
	if TrashLeft(cfg, "n2") {
		t.Error("EmptyTrash leaves it, too")
	}
}
