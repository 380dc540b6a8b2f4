package vfpool

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vfpool/device"
	"github.com/slurm-v/slurm-v/vfpool/lease"
	"github.com/slurm-v/slurm-v/vfpool/sriov/sriovtest"
)

var bothFabrics = []sriovtest.Card{
	{Name: "eth0", Driver: "mlx5_core", Speed: 100000, VFs: 4},
	{Name: "ib0", Driver: "mlx5_core", InfiniBand: true, Speed: 100000, VFs: 4},
	{Name: "ib1", Driver: "mlx4_core", InfiniBand: true, Speed: 40000, VFs: 4},
}

// withGUIDs is a demand with VFs on these PFs, one each.
func withGUIDs(pfs ...string) Demand {
	var vfs []jobspec.VF
	for _, pf := range pfs {
		vfs = append(vfs, jobspec.VF{PF: pf})
	}
	d := demand(7, vfs...)
	d.PKey = 0x9004
	for i := range d.Requests {
		d.Requests[i].NodeGUID, d.Requests[i].PortGUID = "02:60:00:00:00:70:00:00", "02:50:00:00:00:70:00:00"
	}
	return d
}

func TestAJobHasATagOnEachFabric(t *testing.T) {
	l := newLab(t, bothFabrics...)
	p := l.mustPool(t)
	grants, err := p.Acquire(t.Context(), withGUIDs("eth0", "ib0", "ib1"))
	if err != nil {
		t.Fatal(err)
	}
	want := []device.Settings{
		{MAC: "06:00:00:00:07:00", VLAN: 100, SpoofCheck: true, Link: device.LinkAuto},
		{NodeGUID: "02:60:00:00:00:70:00:00", PortGUID: "02:50:00:00:00:70:00:00", PKey: 0x9004, SpoofCheck: true, Link: device.LinkAuto},
		{PortGUID: "02:50:00:00:00:70:00:00", PKey: 0x9004, SpoofCheck: true, Link: device.LinkAuto},
	}
	for i, g := range grants {
		if diff := cmp.Diff(want[i], g.Settings); diff != "" {
			t.Errorf("the settings on %s differ (-want +got):\n%s", g.VF.PF, diff)
		}
	}
	for text, times := range map[string]int{"VLAN:100": 1, "PortGUID:02:50:00:00:00:70:00:00": 1, "guid=250000000700000 3 1 none none": 1} {
		if got := strings.Count(l.node.Snapshot(t), text); got != times {
			t.Errorf("%q is set %d times, want %d:\n%s", text, got, times, l.node.Snapshot(t))
		}
	}
	checkTable(t, p)
	if err := p.Release(t.Context(), journal.ID{Job: 7}); err != nil {
		t.Fatal(err)
	}
	if left := l.node.Snapshot(t); strings.Contains(left, "02:50") || strings.Contains(left, "guid=25") || strings.Contains(left, " 3 1 ") {
		t.Errorf("left %s", left)
	}
}

func checkTable(t *testing.T, p *Pool) {
	t.Helper()
	pfs, err := p.List()
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	if err := WriteTable(&table, pfs); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"06:00:00:00:07:00 100 ", "02:50:00:00:00:70:00:00 0x9004 "} {
		if text := strings.Join(strings.Fields(table.String()), " "); !strings.Contains(text, want) {
			t.Errorf("the table has no %q:\n%s", want, table.String())
		}
	}
	if vf := pfs[1].VFs[0]; vf.PKey != 0x9004 || vf.NodeGUID != "02:60:00:00:00:70:00:00" || vf.PortGUID != "02:50:00:00:00:70:00:00" || vf.MAC != "" || vf.VLAN != 0 {
		t.Errorf("the list has %+v", vf)
	}
}

func TestTagsThatACardCannotHave(t *testing.T) {
	tests := map[string]struct {
		card   sriovtest.Card
		change func(*Demand)
		want   string // in the error; "" if the job gets its VF
	}{
		"a partition":                           {bothFabrics[1], func(*Demand) {}, ""},
		"a partition of a card nobody knows":    {sriovtest.Card{Name: "ib0", Driver: "acme", InfiniBand: true, Speed: 100000, VFs: 1}, func(*Demand) {}, "ib0: its driver, acme, cannot put VFs into the job's partition"},
		"no tag of a card nobody knows":         {sriovtest.Card{Name: "ib0", Driver: "acme", InfiniBand: true, Speed: 100000, VFs: 1}, func(d *Demand) { d.PKey, d.VLAN = 0, 0 }, ""},
		"a VLAN on InfiniBand":                  {bothFabrics[1], func(d *Demand) { d.PKey = 0 }, "ib0: its driver, mlx5_core, cannot put VFs into the job's VLAN"},
		"no tag on InfiniBand":                  {bothFabrics[1], func(d *Demand) { d.PKey, d.VLAN = 0, 0 }, ""},
		"a VLAN that Ethernet cannot have":      {sriovtest.Card{Name: "ib0", Driver: "acme", Speed: 100000, VFs: 1}, func(*Demand) {}, "ib0: its driver, acme, cannot put VFs into the job's VLAN"},
		"a partition that is not on the node's": {sriovtest.Card{Name: "ib0", Driver: "mlx5_core", Speed: 100000, VFs: 1}, func(d *Demand) { d.VLAN = 0 }, ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			d := withGUIDs("ib0")
			tt.change(&d)
			_, err := newLab(t, tt.card).mustPool(t).Acquire(t.Context(), d)
			if (err == nil) != (tt.want == "") || err != nil && (!errors.Is(err, ErrNoFit) || !strings.Contains(err.Error(), tt.want)) {
				t.Errorf("error = %v, want one that says %q", err, tt.want)
			}
		})
	}
}

// Leases of the previous version have no GUIDs; jobs may have them during an update.
func TestALeaseWithoutGUIDs(t *testing.T) {
	const text = `{"vf":{"PF":"ib0","Index":1,"Kind":"sriov","PCI":"0000:01:10.1","NUMA":0,"Group":7,"Device":"0000:01:10.1"},"job":{"job":7,"restart":0},"vm":0,"index":0,` +
		`"want":{"mac":"06:00:00:00:07:00","vlan":100,"spoof_check":true,"trust":false,"link":"auto"},"original":{"settings":{"mac":"00:00:00:00:00:00","spoof_check":false,"trust":false,"link":"auto"},"owner":{"uid":0,"gid":0}},"step":"attached","boot_id":"b","epoch":3}`
	var l lease.Lease
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		t.Fatal(err)
	}
	want := device.Settings{MAC: "06:00:00:00:07:00", VLAN: 100, SpoofCheck: true, Link: device.LinkAuto}
	if l.Want != want || l.Original.Settings.NodeGUID != "" || l.Original.Settings.PKeyMap != "" {
		t.Errorf("read %+v, %+v", l.Want, l.Original)
	}
	again, err := json.Marshal(l)
	if err != nil || strings.Contains(string(again), "guid") || strings.Contains(string(again), "pkey") {
		t.Errorf("written again: %s, %v", again, err)
	}
}
