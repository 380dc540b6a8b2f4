package vfpool

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/vfpool/device"
	"github.com/slurm-v/slurm-v/vfpool/sriov/sriovtest"
)

// ofPool is true for the VLAN that [demand] asks for, and for GUIDs as jobs have them.
func ofPool(s device.Settings) bool { return s.VLAN == 100 || strings.HasPrefix(s.PortGUID, "02:5") }

// forget removes the leases, as somebody does by hand.
func (l lab) forget(t *testing.T) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(l.state, "vf", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("leases %v, %v", files, err)
	}
	for _, file := range files {
		if err := os.RemoveAll(file); err != nil {
			t.Fatal(err)
		}
	}
}

// A later job would take the VLAN for what the VF had before, and restore it.
func TestAStrayIsCleared(t *testing.T) {
	l := newLab(t, twoCards...)
	vlan := demand(7, jobspec.VF{PF: "eth1", MaxMbps: 100})
	if _, err := l.mustPool(t).Acquire(t.Context(), vlan); err != nil {
		t.Fatal(err)
	}
	l.forget(t)
	p := l.mustPool(t)
	before := l.node.Snapshot(t)
	for _, dryRun := range []bool{true, false} {
		strays, err := p.ClearStrays(t.Context(), ofPool, dryRun)
		if err != nil || len(strays) != 1 || strays[0].VF.PF != "eth1" || strays[0].Settings.VLAN != 100 {
			t.Fatalf("%+v, %v", strays, err)
		}
		if dryRun && l.node.Snapshot(t) != before {
			t.Error("a dry run changes something")
		}
	}
	after := l.node.Snapshot(t)
	if strings.Contains(after, "VLAN:100") || strings.Contains(after, "MaxRate:100") || strings.Contains(after, "dirty=true") || strings.Contains(after, "6001") {
		t.Errorf("the job's settings are left:\n%s", after)
	}
	if strays, err := p.ClearStrays(t.Context(), ofPool, false); err != nil || len(strays) > 0 {
		t.Errorf("afterwards: %+v, %v", strays, err)
	}
}

func TestAStrayOnInfiniBand(t *testing.T) {
	for name, card := range map[string]sriovtest.Card{
		"mlx5": {Name: "ib0", Driver: "mlx5_core", InfiniBand: true, VFs: 2, HostDriver: "mlx5_core"},
		"mlx4": {Name: "ib0", Driver: "mlx4_core", InfiniBand: true, VFs: 2},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, card)
			d := demand(7, jobspec.VF{})
			d.VLAN, d.PKey = 0, 0x9004
			d.Requests[0].NodeGUID, d.Requests[0].PortGUID = "02:60:00:00:07:00:00:00", "02:50:00:00:07:00:00:00"
			if _, err := l.mustPool(t).Acquire(t.Context(), d); err != nil {
				t.Fatal(err)
			}
			l.forget(t)
			p := l.mustPool(t)
			strays, err := p.ClearStrays(t.Context(), ofPool, false)
			if err != nil || len(strays) != 1 {
				t.Fatalf("%+v, %v", strays, err)
			}
			left, err := p.backends[device.SRIOV].Remains(t.Context(), strays[0].VF)
			if err != nil || ofPool(left) || left.PKeyMap != "" && left.PKeyMap != "none" {
				t.Errorf("left: %+v, %v", left, err)
			}
		})
	}
}

// Each VF has a VLAN, and only a stray may lose it.
func TestVFsThatAreNoStraysAreLeftAlone(t *testing.T) {
	tests := map[string]struct {
		after func(t *testing.T, l lab, vf device.VF)
		want  error
	}{
		"one with a lease":                   {func(*testing.T, lab, device.VF) {}, nil},
		"one with a VLAN of the site's":      {func(t *testing.T, l lab, vf device.VF) { l.forget(t); l.set(t, vf, 7, true) }, nil},
		"one that a driver of the host has":  {func(t *testing.T, l lab, vf device.VF) { l.forget(t); l.set(t, vf, 100, false) }, nil},
		"one that a program has open, later": {func(t *testing.T, l lab, vf device.VF) { l.forget(t); l.hold(t, vf) }, unix.EBUSY},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, twoCards[0])
			grants, err := l.mustPool(t).Acquire(t.Context(), demand(7, jobspec.VF{}))
			if err != nil {
				t.Fatal(err)
			}
			vf := grants[0].VF
			tt.after(t, l, vf)
			l.node.OnEnd = func(uid uint32) { t.Errorf("programs of user %d are killed", uid) }
			before, p := l.node.Snapshot(t), l.mustPool(t)
			strays, err := p.ClearStrays(t.Context(), ofPool, false)
			if len(strays) > 0 || !errors.Is(err, tt.want) {
				t.Errorf("cleared %+v, %v", strays, err)
			}
			// A job may have got the VF since it was a stray.
			if done, err := p.clear(t.Context(), vf, ofPool); done || !errors.Is(err, tt.want) {
				t.Errorf("cleared: %v, error = %v, want %v", done, err, tt.want)
			}
			if after := l.node.Snapshot(t); after != before {
				t.Errorf("the VFs are\n%s\nand were\n%s", after, before)
			}
		})
	}
}

// set gives a VF a VLAN that is not a job's, for a VM of the site or for the host itself.
func (l lab) set(t *testing.T, vf device.VF, vlan uint16, vm bool) {
	t.Helper()
	cards, blank := l.node.Open(), device.State{Driver: "mlx5_core", Settings: device.Settings{MAC: "00:00:00:00:00:00", SpoofCheck: true, Link: device.LinkAuto}}
	blank.Settings.VLAN = vlan
	err := cards.Restore(t.Context(), vf, blank)
	if vm {
		err = errors.Join(err, cards.Apply(t.Context(), vf, device.Settings{VLAN: vlan}), cards.Attach(t.Context(), vf, owner.IDs{UID: 64055}))
	}
	if err != nil {
		t.Fatal(err)
	}
}

func (l lab) hold(t *testing.T, vf device.VF) {
	t.Helper()
	end, err := l.node.Hold(vf.PCI)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(end)
}

// A VF that cannot be read hides no other.
func TestStraysBesideAVFThatCannotBeRead(t *testing.T) {
	l := newLab(t, twoCards...)
	if _, err := l.mustPool(t).Acquire(t.Context(), demand(7, jobspec.VF{PF: "eth1"})); err != nil {
		t.Fatal(err)
	}
	l.forget(t)
	l.node.Change(t, "eth0", func(c *sriovtest.Card) { c.Unreadable = true })
	strays, err := l.mustPool(t).ClearStrays(t.Context(), ofPool, false)
	if err != nil || len(strays) != 1 {
		t.Errorf("%+v, %v", strays, err)
	}
}
