package vfpool

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vfpool/sriov/sriovtest"
)

// creating is the pool of a site that wants VFs made.
func (l lab) creating(t *testing.T, perPF map[string]int) *Pool {
	t.Helper()
	p := l.mustPool(t)
	p.cfg.CreatePerPF = perPF
	return p
}

// create makes VFs, and says what was done in a line for each PF.
func create(t *testing.T, p *Pool) (lines []string) {
	t.Helper()
	done, err := p.Create(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range done {
		if c.Err != nil {
			c.Did = "error: " + c.Err.Error()
		}
		lines = append(lines, c.PF+": "+c.Did)
	}
	return lines
}

func want(t *testing.T, got []string, want ...string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("lines differ (-want +got):\n%s", diff)
	}
}

func (l lab) vfs(t *testing.T) string {
	t.Helper()
	pfs, err := l.mustPool(t).List()
	if err != nil {
		t.Fatal(err)
	}
	var text []string
	for _, pf := range pfs {
		text = append(text, fmt.Sprint(pf.Name, " ", len(pf.VFs)))
	}
	return strings.Join(text, ", ")
}

func TestCreateMakesVFsOnce(t *testing.T) {
	l := newLab(t, sriovtest.Card{Name: "eth0", Driver: "igb", TotalVFs: 7, HostDriver: "igbvf"}, sriovtest.Card{Name: "eth1", Driver: "igb", VFs: 3, TotalVFs: 7, HostDriver: "igbvf"})
	p := l.creating(t, map[string]int{"eth0": 4, "eth9": 4})
	want(t, create(t, p), "eth0: made 4 VFs", "eth9: is no network interface with SR-IOV on this node")
	if got := l.vfs(t); got != "eth0 4, eth1 3" {
		t.Errorf("the node has VFs %s", got)
	}
	if snapshot := l.node.Snapshot(t); strings.Count(snapshot, "igbvf") != 3 {
		t.Errorf("drivers took VFs that were made:\n%s", snapshot)
	}
	l.node.OnEffect = func(op string) error { return fmt.Errorf("%s: %w", op, unix.EIO) }
	want(t, create(t, p), "eth0: has its 4 VFs", "eth9: is no network interface with SR-IOV on this node")
}

func TestCreateChangesTheNumber(t *testing.T) {
	for from := range 4 {
		l := newLab(t, sriovtest.Card{Name: "eth0", Driver: "igb", VFs: from, TotalVFs: 7, HostDriver: "igbvf"})
		p := l.mustPool(t)
		p.cfg.PFs, p.cfg.Create = []string{"eth0"}, 3
		if got := create(t, p); len(got) != 1 || l.vfs(t) != "eth0 3" {
			t.Errorf("from %d VFs: %q, and VFs %s", from, got, l.vfs(t))
		}
	}
}

func TestCreateLeavesVFsOfJobsAlone(t *testing.T) {
	l := newLab(t, twoCards...)
	p := l.creating(t, map[string]int{"eth0": 2, "eth1": 2})
	if _, err := p.Acquire(t.Context(), demand(7, jobspec.VF{PF: "eth0"})); err != nil {
		t.Fatal(err)
	}
	want(t, create(t, p), "eth0: error: it has 4 VFs and is to have 2; some are leased to job 7.0: run this again when it has ended (slurmv vf list)", "eth1: made 2 VFs")
	p.cfg.CreatePerPF["eth0"] = 4
	want(t, create(t, p), "eth0: has its 4 VFs", "eth1: has its 2 VFs")
	p.cfg.CreatePerPF["eth0"] = 2
	if err := p.Release(t.Context(), journal.ID{Job: 7}); err != nil {
		t.Fatal(err)
	}
	want(t, create(t, p), "eth0: made 2 VFs", "eth1: has its 2 VFs")
}

func TestCreateRefuses(t *testing.T) {
	tests := map[string]struct {
		card   sriovtest.Card
		effect error
		want   string
	}{
		"more than the card has":  {sriovtest.Card{VFs: 2, TotalVFs: 3}, nil, "it can have 3 VFs at most (sriov_totalvfs), and the site wants 4"},
		"VFs of another program":  {sriovtest.Card{VFs: 2, TotalVFs: 7, HostDriver: "vfio-pci"}, nil, "it has 2 VFs and is to have 4; of VF 0, its driver is vfio-pci, by which programs have VFs"},
		"what the kernel refuses": {sriovtest.Card{VFs: 2, TotalVFs: 7}, unix.ENOMEM, "make 4 VFs: write "},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tt.card.Name, tt.card.Driver = "eth0", "igb"
			l := newLab(t, tt.card)
			l.node.OnEffect = func(op string) error {
				if op == "write sriov_numvfs" {
					return tt.effect
				}
				return nil
			}
			got := create(t, l.creating(t, map[string]int{"eth0": 4}))
			if len(got) != 1 || !strings.Contains(got[0], "error: "+tt.want) || tt.effect != nil && !strings.Contains(got[0], "(ENOMEM); the kernel's log (dmesg) says why for 0000:01:00.0") {
				t.Errorf("%q, want %q", got, tt.want)
			}
			if has := l.vfs(t); has != "eth0 2" {
				t.Errorf("the node has VFs %s", has)
			}
		})
	}
}

// soonOver is a context for calls that are expected to wait for ever.
func soonOver(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

// While VFs are made, no job is leased any.
func TestCreateKeepsJobsAway(t *testing.T) {
	l := newLab(t, sriovtest.Card{Name: "eth0", Driver: "igb", VFs: 2, TotalVFs: 7})
	p := l.creating(t, map[string]int{"eth0": 4})
	var inside error
	l.node.OnEffect = func(op string) error {
		if op == "write sriov_numvfs" && inside == nil {
			_, inside = p.Acquire(soonOver(t), demand(7, jobspec.VF{}))
		}
		return nil
	}
	want(t, create(t, p), "eth0: made 4 VFs")
	if inside == nil || !strings.Contains(inside.Error(), "lock VF leases") {
		t.Errorf("a job that came then: %v", inside)
	}
	if _, err := p.Acquire(t.Context(), demand(8, jobspec.VF{}, jobspec.VF{}, jobspec.VF{}, jobspec.VF{})); err != nil {
		t.Error(err)
	}
}

// Without numbers in the configuration nothing is made.
func TestCreateOfNothing(t *testing.T) {
	l := newLab(t, sriovtest.Card{Name: "eth0", Driver: "igb", VFs: 2, TotalVFs: 7})
	p := l.mustPool(t)
	p.cfg.PFs = []string{"eth0"}
	want(t, create(t, p))
	p.cfg.Create, p.cfg.CreatePerPF = 4, map[string]int{"eth0": 0}
	want(t, create(t, p))
	if got := l.vfs(t); got != "eth0 2" {
		t.Errorf("the node has VFs %s", got)
	}
	delete(p.cfg.CreatePerPF, "eth0")
	want(t, create(t, p), "eth0: made 4 VFs")
}

// The configuration in slurmv.toml makes nothing.
func TestDefaultsCreateNothing(t *testing.T) {
	if names := toCreate(config.Default().VF); names != nil {
		t.Errorf("VFs are made of %q", names)
	}
}
