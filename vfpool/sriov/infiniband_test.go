package sriov_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/vfpool/device"
	"github.com/slurm-v/slurm-v/vfpool/sriov"
	"github.com/slurm-v/slurm-v/vfpool/sriov/sriovtest"
)

var (
	mlx5IB = sriovtest.Card{Driver: "mlx5_core", InfiniBand: true}
	mlx4IB = sriovtest.Card{Driver: "mlx4_core", InfiniBand: true}
)

const noGUID = "ff:ff:ff:ff:ff:ff:ff:ff"

func TestTheTableAgreesWithTheModelsOnGUIDs(t *testing.T) {
	for name, c := range drivers {
		t.Run(name, func(t *testing.T) {
			fake := sriovtest.New(t, card(c))
			pf, _ := first(t, fake.Open())
			s := device.Settings{NodeGUID: "02:60:00:01:07:90:00:81", PortGUID: "02:50:00:01:07:90:00:81"}
			for _, a := range []sriov.Attribute{sriov.NodeGUID, sriov.PortGUID} {
				if err := fake.Links().Set("eth0", 1, a, s); (err == nil) != pf.Caps.GUID || err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
					t.Errorf("the driver says of %s: %v; the table says %v", a, err, pf.Caps.GUID)
				}
			}
		})
	}
}

// The port of a VF comes up with the GUIDs that it has then.
func TestTheLinkComesUpAfterTheGUIDs(t *testing.T) {
	j := newTrial(t, card(mlx5IB))
	var asked []string
	j.fake.OnEffect = func(op string) error { asked = append(asked, op); return nil }
	if err := j.call("apply"); err != nil {
		t.Fatal(err)
	}
	down, node := slices.Index(asked, "set state"), slices.Index(asked, "set node_guid")
	port, up := slices.Index(asked, "set port_guid"), len(asked)-1
	for asked[up] != "set state" {
		up--
	}
	if down < 0 || node < down || port < down || up < node || up < port {
		t.Errorf("the order is %q", asked)
	}
}

// GUIDs that a job leaves behind would appear twice on the fabric, if the job is requeued.
func TestGUIDsAreTakenBack(t *testing.T) {
	tests := map[string]struct {
		card           sriovtest.Card
		given, becomes string
	}{
		"a VF that had none":                 {mlx5IB, "", noGUID},
		"a VF with those of the site":        {mlx5IB, "02:00:00:00:00:00:00:07", "02:00:00:00:00:00:00:07"},
		"a kernel that does not report them": {sriovtest.Card{Driver: "mlx5_core", InfiniBand: true, HidesGUIDs: true}, "", noGUID},
		"a PF whose VFs cannot be read":      {sriovtest.Card{Driver: "mlx5_core", InfiniBand: true, Unreadable: true}, "", noGUID},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			fake := sriovtest.New(t, card(tt.card))
			node := fake.Open()
			pf, vf := first(t, node)
			if tt.given != "" {
				site := device.Settings{NodeGUID: tt.given, PortGUID: tt.given}
				if err := errors.Join(fake.Links().Set("eth0", 1, sriov.NodeGUID, site), fake.Links().Set("eth0", 1, sriov.PortGUID, site)); err != nil {
					t.Fatal(err)
				}
			}
			original, err := node.State(ctx, vf)
			if err := errors.Join(err, node.Apply(ctx, vf, everything(pf.Caps))); err != nil {
				t.Fatal(err)
			}
			if text := fake.Snapshot(t); !strings.Contains(text, "NodeGUID:02:60:00:01:07:90:00:81 PortGUID:02:50:00:01:07:90:00:81 ") {
				t.Fatalf("applied %s", text)
			}
			if err := node.Restore(ctx, vf, original); err != nil {
				t.Fatal(err)
			}
			if text := fake.Snapshot(t); !strings.Contains(text, "NodeGUID:"+tt.becomes+" PortGUID:"+tt.becomes+" ") {
				t.Errorf("left %s", text)
			}
		})
	}
}

func TestGUIDsThatTheDriverDrops(t *testing.T) {
	c := mlx5IB
	c.DropsGUIDs = true
	j := newTrial(t, card(c))
	if err := j.call("apply"); err == nil || !strings.Contains(err.Error(), "node_guid 02:60:00:01:07:90:00:81: reads back 00:00:00:00:00:00:00:00") {
		t.Errorf("error = %v", err)
	}
}

func TestGUIDsThatAreNone(t *testing.T) {
	for _, c := range []sriovtest.Card{mlx4IB, mlx5IB} {
		links := sriov.Netlink()
		s := device.Settings{PortGUID: "02:53:56:00:00:01", NodeGUID: "guid"}
		if err := links.Set("lo", 0, sriov.PortGUID, s); !errors.Is(err, unix.EINVAL) {
			t.Errorf("error = %v", err)
		}
		if err := links.Set("lo", 0, sriov.NodeGUID, s); !errors.Is(err, unix.EINVAL) {
			t.Errorf("error = %v", err)
		}
		j := newTrial(t, card(c))
		if j.want.PortGUID = "02:53:56:00:00:01"; c.Driver == "mlx4_core" {
			if err := j.call("apply"); !errors.Is(err, unix.EINVAL) || !strings.Contains(err.Error(), "is not a GUID") {
				t.Errorf("error = %v", err)
			}
		}
	}
}

func TestPKeysOfAPFThatHasNone(t *testing.T) {
	for name, c := range map[string]sriovtest.Card{"an unknown driver": {Driver: "acme", InfiniBand: true}, "Ethernet": {Driver: "mlx5_core"}} {
		t.Run(name, func(t *testing.T) {
			j := newTrial(t, card(c))
			j.want = device.Settings{PKey: 0x9004}
			var unsupported *sriov.UnsupportedError
			if err := j.call("apply"); !errors.As(err, &unsupported) || unsupported.Attribute != "pkey" {
				t.Errorf("error = %v", err)
			}
			if j.fake.Snapshot(t) != j.before {
				t.Error("it is refused, but something has changed")
			}
		})
	}
}

func TestKeysThatThePFGives(t *testing.T) {
	tests := map[string]struct {
		keys []uint16 // of the port
		pkey uint16
		want string // in the snapshot, or the error
		ok   bool
	}{
		"the job's first, then the default one":   {nil, 0x9004, "port 1: guid=250000107900081 3 1 none none port 2: guid=14050000000002 none none none none", true},
		"wherever the port has them":              {[]uint16{0x9004, 0, 0x7fff}, 0x9004, "port 1: guid=250000107900081 0 2 none none", true},
		"no job's":                                {nil, 0, "port 1: guid=250000107900081 0 none none none port 2: guid=14050000000002 0 none", true},
		"the port is not in the partition":        {[]uint16{0x7fff}, 0x9004, "pkey_idx 0x9004: port 1 of eth0 has not got it: not yet; the ports of the job's nodes have to be members", false},
		"the port is only a limited member":       {[]uint16{0x7fff, 0x1004}, 0x9004, "port 1 of eth0 has not got it", false},
		"the port is full in the default one":     {[]uint16{0xffff, 0x9004}, 0x9004, "VMs of different jobs would reach each other; make it a limited member as well", false},
		"the port is not in the default one":      {[]uint16{0x9004}, 0x9004, "is not in the default partition", false},
		"the port has both kinds of the default ": {[]uint16{0xffff, 0x9004, 0x7fff}, 0x9004, "guid=250000107900081 1 2 none none", true},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			c := mlx4IB
			c.PKeys = tt.keys
			j := newTrial(t, card(c))
			j.want.PKey = tt.pkey
			err := j.call("apply")
			text := j.fake.Snapshot(t)
			if !tt.ok {
				if text != j.before {
					t.Errorf("it is refused, but something has changed: %s", text)
				}
				text = ""
				if err != nil {
					text, err = err.Error(), nil
				}
			}
			if err != nil || !strings.Contains(text, tt.want) {
				t.Errorf("%v, %s\nwant %s", err, text, tt.want)
			}
			j.checkClean(t)
		})
	}
}

// The subnet manager may be slower than the launch.
func TestAKeyThatComesLater(t *testing.T) {
	c := mlx4IB
	c.PKeys = []uint16{0x7fff}
	fake := sriovtest.New(t, card(c))
	node := fake.Open()
	pf, vf := first(t, node)
	node.Patience = 10_000_000_000
	done := make(chan error)
	go func() { done <- node.Apply(ctx, vf, everything(pf.Caps)) }()
	fake.Change(t, "eth0", func(c *sriovtest.Card) { c.PKeys = append(c.PKeys, 0x9004) })
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// The names of VFs in the tables have the device's number in decimal.
func TestVFsBeyondTheTenthDevice(t *testing.T) {
	c := card(mlx4IB)
	c.VFs = 100
	fake := sriovtest.New(t, c)
	node := fake.Open()
	pfs, err := node.PFs()
	if err != nil {
		t.Fatal(err)
	}
	if err := node.Apply(ctx, pfs[0].VFs[90], everything(pfs[0].Caps)); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(fake.Snapshot(t), "\n")
	for i, line := range lines {
		if strings.Contains(line, "guid=250000107900081 3 1 none none") != (i == 90) {
			t.Errorf("VF %d has %s", i, line)
		}
	}
}
