package vmlaunch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
	"libvirt.org/go/libvirtxml"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/ivshmem"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vmstep"
)

func planWithRegions(t *testing.T, cfg config.Config, number uint32, shared jobspec.IVShmem) Plan {
	t.Helper()
	job := someJob()
	job.ID.Job, job.Spec.IVShmem = number, shared
	p, err := NewPlan(cfg, job, Owner{Name: "a", UID: uint32(os.Getuid()), GID: uint32(os.Getgid())}, Hardware{Accel: config.AccelTCG, NUMA: -1})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDomainHasRoomForSharedMemory(t *testing.T) {
	const port, bridge = "pcie-root-port 1", "pcie-to-pci-bridge 2"
	tests := map[string]struct {
		shared jobspec.IVShmem
		want   []string // the PCI controllers
	}{
		"none":                 {jobspec.IVShmem{}, nil},
		"some":                 {jobspec.IVShmem{Devices: 2, SizeMiB: 16}, []string{port, bridge}},
		"as much as fits":      {jobspec.IVShmem{Devices: 1, SizeMiB: 16 << 10}, []string{port, bridge}},
		"more than fits":       {jobspec.IVShmem{Devices: 2, SizeMiB: 16 << 10}, []string{"pcie-root 0 67108864 KiB", port, bridge}},
		"a sum that is uneven": {jobspec.IVShmem{Devices: 3, SizeMiB: 16 << 10}, []string{"pcie-root 0 134217728 KiB", port, bridge}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := planWithRegions(t, config.Default(), 42, tt.shared)
			text, err := p.domain(p.VMs[0], nil).Marshal()
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, pciControllers(t, text)); diff != "" {
				t.Errorf("controllers differ (-want +got):\n%s", diff)
			}
			want := guest.IVShmem{Devices: tt.shared.Devices, Size: tt.shared.SizeMiB << 20}
			if got := p.guestMemory(); got != want {
				t.Errorf("the guest is told of %+v, want %+v", got, want)
			}
		})
	}
}

func pciControllers(t *testing.T, text string) (controllers []string) {
	t.Helper()
	var d libvirtxml.Domain
	if err := d.Unmarshal(text); err != nil {
		t.Fatal(err)
	}
	for _, c := range d.Devices.Controllers {
		switch {
		case c.Type != "pci":
		case c.PCI != nil && c.PCI.Hole64 != nil:
			controllers = append(controllers, fmt.Sprint(c.Model, " ", *c.Index, " ", c.PCI.Hole64.Size, " ", c.PCI.Hole64.Unit))
		default:
			controllers = append(controllers, fmt.Sprint(c.Model, " ", *c.Index))
		}
	}
	return controllers
}

// The slot tells a guest which device it is, and every region has one.
func TestSharedMemoryIsInOrder(t *testing.T) {
	for index, slot := range map[int]string{0: "0x01", 1: "0x02", config.MaxIVShmem - 1: "0x1f"} {
		text, err := shmemDevice(ivshmem.Region{Name: "slurmv-x", Index: index, Size: 16 << 20}).Marshal()
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{
			`<shmem name="slurmv-x">`, `<model type="ivshmem-plain"></model>`, `<size unit="M">16</size>`,
			`<address type="pci" bus="0x02" slot="` + slot + `"></address>`,
		} {
			if !strings.Contains(text, part) {
				t.Errorf("%s is missing in\n%s", part, text)
			}
		}
	}
}

// aNode is the agent of a job that is about to lease its regions. They are in
// /dev/shm, under names that nobody else's have.
func aNode(t *testing.T, cfg config.Config, number uint32, shared jobspec.IVShmem) *Node {
	t.Helper()
	p := planWithRegions(t, cfg, number, shared)
	j, err := journal.Create(cfg.StateDir(p.Job.Node), p.Job.ID, journal.Header{UID: p.Owner.UID, GID: p.Owner.GID, Node: p.Job.Node})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	n := newNode(p, j, startStopwatch(time.Time{}), func(vmstep.Progress) {})
	t.Cleanup(func() {
		n.close()
		for _, file := range regionFiles(n) {
			os.Remove(filepath.Join(ivshmem.Dir, file))
		}
	})
	return n
}

func stateIn(dir string) config.Config {
	cfg := config.Default()
	cfg.Paths.State = filepath.Join(dir, "%n")
	return cfg
}

// regionFiles are those of the node's regions that exist.
func regionFiles(n *Node) (files []string) {
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
		before func(*testing.T, *Node, config.Config)
		files  int
	}{
		"only leased": {func(*testing.T, *Node, config.Config) {}, 0},
		"one made": {func(t *testing.T, n *Node, cfg config.Config) {
			_, err := ivshmem.Open(cfg.StateDir("n2"), "n2").Create(t.Context(), n.shared.regions[0], ivshmem.Owner{UID: n.plan.Owner.UID, GID: n.plan.Owner.GID}, -1)
			if err != nil {
				t.Fatal(err)
			}
		}, 1},
		"one half made": {func(t *testing.T, n *Node, _ config.Config) {
			if err := os.WriteFile(filepath.Join(ivshmem.Dir, n.shared.regions[1].Name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}, 1},
		"all made": {func(t *testing.T, n *Node, cfg config.Config) {
			if err := n.makeRegions(t.Context(), cfg); err != nil {
				t.Fatal(err)
			}
		}, 2},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := stateIn(t.TempDir())
			n := aNode(t, cfg, 42, jobspec.IVShmem{Devices: 2, SizeMiB: 1})
			if err := n.leaseRegions(cfg); err != nil {
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
				if err := Reclaim(t.Context(), cfg, "n2", n.plan.Job.ID); err != nil {
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
	n := aNode(t, cfg, 42, jobspec.IVShmem{Devices: 1, SizeMiB: 2})
	on := ivshmem.Open(cfg.StateDir("n2"), "n2")
	r := on.New(n.plan.Job.ID, 0, 2<<20)
	r.Huge = t.TempDir()
	n.shared.regions = append(n.shared.regions, r)
	if err := errors.Join(n.journal.Intend(recordRegion, r.Name, r), n.makeRegions(t.Context(), cfg)); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(r.Huge, r.Name)
	if to, err := os.Readlink(filepath.Join(ivshmem.Dir, r.Name)); err != nil || to != file {
		t.Errorf("the region is at %q, %v; want %s", to, err, file)
	}
	if err := reclaim(t.Context(), cfg, n.journal); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(file); !errors.Is(err, os.ErrNotExist) || regionFiles(n) != nil {
		t.Errorf("left: %v, %q", err, regionFiles(n))
	}
}

func TestRegionsStayWhileAVMMayRun(t *testing.T) {
	cfg := stateIn(t.TempDir())
	n := aNode(t, cfg, 42, jobspec.IVShmem{Devices: 1, SizeMiB: 1})
	if err := errors.Join(n.leaseRegions(cfg), n.makeRegions(t.Context(), cfg), n.journal.Intend(recordDomain, n.plan.VMs[0].UUID, nil)); err != nil {
		t.Fatal(err)
	}
	if err := removeRegion(t.Context(), cfg, n.journal, n.shared.regions[0].Name); err == nil || len(regionFiles(n)) != 1 {
		t.Errorf("error = %v, files %q", err, regionFiles(n))
	}
	if err := reclaim(t.Context(), cfg, n.journal); err != nil || len(regionFiles(n)) != 0 {
		t.Errorf("error = %v, files %q", err, regionFiles(n))
	}
}

// A region's owner must not be able to keep a node from becoming clean.
func TestReclaimOfARegionThatItsOwnerReplaced(t *testing.T) {
	cfg := stateIn(t.TempDir())
	n := aNode(t, cfg, 42, jobspec.IVShmem{Devices: 1, SizeMiB: 1})
	if err := errors.Join(n.leaseRegions(cfg), n.makeRegions(t.Context(), cfg)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(ivshmem.Dir, n.shared.regions[0].Name)
	if err := errors.Join(os.Remove(path), os.Symlink("/etc/hostname", path)); err != nil {
		t.Fatal(err)
	}
	if err := reclaim(t.Context(), cfg, n.journal); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(path); err != nil || len(text) == 0 {
		t.Errorf("%q, %v", text, err)
	}
}

func TestRegionsOfAllJobsAreLimited(t *testing.T) {
	cfg := stateIn(t.TempDir())
	cfg.Limits.IVShmemPerNode = 3
	first, second := aNode(t, cfg, 42, jobspec.IVShmem{Devices: 2, SizeMiB: 1}), aNode(t, cfg, 43, jobspec.IVShmem{Devices: 1, SizeMiB: 2})
	if err := first.leaseRegions(cfg); err != nil {
		t.Fatal(err)
	}
	err := second.leaseRegions(cfg)
	if want := "the jobs on node n2 would have 4M of shared memory (--ivshmem), and this site allows 3M"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("error = %v, want %q", err, want)
	}
	if err := errors.Join(reclaim(t.Context(), cfg, second.journal), reclaim(t.Context(), cfg, first.journal)); err != nil {
		t.Fatal(err)
	}
	if third := aNode(t, cfg, 44, jobspec.IVShmem{Devices: 1, SizeMiB: 2}); third.leaseRegions(cfg) != nil {
		t.Error("what was given back still counts")
	}
}

func TestWipeOfADevice(t *testing.T) {
	cfg := stateIn(t.TempDir())
	n := aNode(t, cfg, 42, jobspec.IVShmem{Devices: 2, SizeMiB: 1})
	if err := errors.Join(n.leaseRegions(cfg), n.makeRegions(t.Context(), cfg)); err != nil {
		t.Fatal(err)
	}
	for _, r := range n.shared.regions {
		if err := os.WriteFile(filepath.Join(ivshmem.Dir, r.Name), []byte("secret"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.wipeRegion(1); err != nil {
		t.Fatal(err)
	}
	for k, want := range []string{"secret", "\x00\x00\x00\x00\x00\x00"} {
		if text, _ := os.ReadFile(filepath.Join(ivshmem.Dir, n.shared.regions[k].Name)); string(text) != want {
			t.Errorf("device %d has %q, want %q", k, text, want)
		}
	}
	for _, k := range []int{-1, 2} {
		if n.wipeRegion(k) == nil {
			t.Errorf("device %d was wiped", k)
		}
	}
	if got := n.regionSize(); got != 1<<20 {
		t.Errorf("size %d", got)
	}
}

func TestCleanRemovesRegionsWithoutAJournal(t *testing.T) {
	cfg := stateIn(t.TempDir())
	lost, kept := aNode(t, cfg, 42, jobspec.IVShmem{Devices: 2, SizeMiB: 1}), aNode(t, cfg, 43, jobspec.IVShmem{Devices: 1, SizeMiB: 1})
	for _, n := range []*Node{lost, kept} {
		if err := errors.Join(n.leaseRegions(cfg), n.makeRegions(t.Context(), cfg)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(lost.journal.Dir()); err != nil {
		t.Fatal(err)
	}
	if err := removeOrphanRegions(t.Context(), cfg, "n2"); err != nil {
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
	lost, ended := aNode(t, cfg, 42, jobspec.IVShmem{Devices: 1, SizeMiB: 1}), aNode(t, cfg, 43, jobspec.IVShmem{Devices: 1, SizeMiB: 1})
	for _, n := range []*Node{lost, ended} {
		if err := errors.Join(n.leaseRegions(cfg), n.makeRegions(t.Context(), cfg), n.journal.Close()); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.RemoveAll(lost.journal.Dir()); err != nil {
		t.Fatal(err)
	}
	junk := leasedJunk(t, cfg)
	cleaned, err := Clean(t.Context(), cfg, "n2", func(context.Context) (map[journal.ID]bool, error) { return nil, nil })
	if err != nil || len(cleaned) != 1 || cleaned[0] != ended.plan.Job.ID {
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

// One part of clean that fails keeps it from no other.
func TestCleanDoesEverythingThoughSomethingFails(t *testing.T) {
	cfg := stateIn(t.TempDir())
	cfg.Paths.Run = filepath.Join(t.TempDir(), "%n")
	ended := aNode(t, cfg, 43, jobspec.IVShmem{})
	if err := errors.Join(ended.journal.Close(), os.WriteFile(filepath.Join(cfg.StateDir("n2"), "templates"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	cleaned, err := Clean(t.Context(), cfg, "n2", func(context.Context) (map[journal.ID]bool, error) { return nil, nil })
	if err == nil || !strings.Contains(err.Error(), "templates") || len(cleaned) != 1 {
		t.Errorf("cleaned %v, error %v", cleaned, err)
	}
}
