package vmnet

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/bridgeport"
	"github.com/slurm-v/slurm-v/internal/netlab"
	"github.com/slurm-v/slurm-v/journal"
)

var (
	job1 = journal.ID{Job: 4217}
	job2 = journal.ID{Job: 4218}
)

func TestTheVMsOfAJobReachEachOther(t *testing.T) {
	a, b := newPair(t)
	vms := connect(t, job1, a, b)
	third := a.addVM(job1, 2, 1)
	for name, tt := range map[string]struct{ from, to *vm }{
		"on one node":        {vms[0], third},
		"on two nodes":       {vms[0], vms[1]},
		"and the other way":  {vms[1], vms[0]},
		"by another VM's is": {third, vms[1]},
	} {
		t.Run(name, func(t *testing.T) {
			from, to := tt.from, tt.to
			if !from.arrives(netlab.ARP(from.MAC, from.MAC, from.Addr, to.Addr), to) {
				t.Error("its ARP request does not arrive")
			}
			full := ipFrame(from.MAC, to.MAC, from.Addr, to.Addr, make([]byte, from.mtu-28))
			if !from.arrives(full, to) {
				t.Errorf("a packet of %d bytes, the MTU, does not arrive", from.mtu)
			}
		})
	}
	if vms[0].mtu != 1450 {
		t.Errorf("MTU = %d, want 1450", vms[0].mtu)
	}
}

func TestAJobOfOneNode(t *testing.T) {
	n := newNode(t)
	vms := connect(t, job1, n)
	other := n.addVM(job1, 1, 1)
	if !vms[0].arrives(ipFrame(vms[0].MAC, other.MAC, vms[0].Addr, other.Addr, nil), other) || other.mtu != 1500 {
		t.Errorf("nothing arrives, or MTU %d is not 1500", other.mtu)
	}
}

func TestJobsDoNotReachEachOther(t *testing.T) {
	a, b := newPair(t)
	first, second := connect(t, job1, a, b), connect(t, job2, a, b)
	near, far := a.addVM(job1, 2, 1), a.addVM(job2, 2, 1)
	far.reach(second[0]) // every VM that must not hear it can hear
	far.reach(second[1])
	second[0].reach(far)
	frame := ipFrame(near.MAC, netlab.Broadcast, near.Addr, far.Addr, []byte("to another job"))
	if !near.arrives(frame, first[1]) {
		t.Fatal("a broadcast does not arrive in the own job")
	}
	for _, foreign := range []*vm{second[0], second[1], far} {
		if has(foreign.received(nil), frame) {
			t.Errorf("a broadcast arrives in another job, at %v", foreign.Addr)
		}
	}
}

func TestWhatAVMMayNotSend(t *testing.T) {
	a, b := newPair(t)
	vms := connect(t, job1, a, b)
	beside := a.addVM(job1, 2, 1)
	me, victim := vms[0], vms[1]
	none := netip.IPv4Unspecified()
	format := netlab.ARP(me.MAC, me.MAC, me.Addr, beside.Addr)
	format[18] = 8 // length of a hardware address
	vlan := ipFrame(me.MAC, netlab.Broadcast, me.Addr, victim.Addr, []byte("tagged"))
	for name, frame := range map[string][]byte{
		"another's MAC":           ipFrame(victim.MAC, netlab.Broadcast, me.Addr, victim.Addr, nil),
		"another's address":       ipFrame(me.MAC, netlab.Broadcast, victim.Addr, beside.Addr, nil),
		"a foreign address":       ipFrame(me.MAC, netlab.Broadcast, netip.MustParseAddr("10.9.0.1"), victim.Addr, nil),
		"no address":              ipFrame(me.MAC, netlab.Broadcast, none, victim.Addr, nil),
		"ARP for another":         netlab.ARP(me.MAC, me.MAC, victim.Addr, beside.Addr),
		"ARP with another's MAC":  netlab.ARP(me.MAC, victim.MAC, me.Addr, beside.Addr),
		"ARP from another's MAC":  netlab.ARP(victim.MAC, me.MAC, me.Addr, beside.Addr),
		"ARP of another format":   format,
		"IPv6":                    netlab.IPv6(me.MAC, unix.IPPROTO_NONE),
		"a VLAN tag":              slices.Concat(vlan[:12], []byte{0x81, 0, 0, 5}, vlan[12:]),
		"a tag of another kind":   slices.Concat(vlan[:12], []byte{0x88, 0xa8, 0, 5}, vlan[12:]),
		"a protocol of bridges":   netlab.Frame(me.MAC, net.HardwareAddr{1, 0x80, 0xc2, 0, 0, 0}, 38, []byte{0x42, 0x42, 3}),
		"an unknown protocol":     netlab.Frame(me.MAC, netlab.Broadcast, 0x1234),
		"a frame that is cut off": netlab.Frame(me.MAC, netlab.Broadcast, unix.ETH_P_IP)[:15],
	} {
		for where, to := range map[string]*vm{"beside": beside, "on the other node": victim} {
			if me.arrives(frame, to) {
				t.Errorf("%s arrives %s", name, where)
			}
		}
	}
}

// The host has no address on the bridge, but Linux takes packets for any of its addresses
// from any link.
func TestAVMDoesNotReachTheHost(t *testing.T) {
	a, b := newPair(t)
	me := connect(t, job1, a, b)[0]
	beside := a.addVM(job1, 2, 1)
	var bridge netlink.Link
	var socket net.PacketConn
	a.do(func() (err error) {
		bridge, err = netlink.LinkByName(bridgeName(job1.Job))
		if err != nil {
			return err
		}
		addrs, err := netlink.AddrList(bridge, netlink.FAMILY_ALL)
		if err != nil {
			return err
		}
		if len(addrs) > 0 {
			t.Errorf("the bridge has addresses: %v", addrs)
		}
		socket, err = net.ListenPacket("udp4", "10.9.0.1:9")
		return errors.Join(err, looseReversePath())
	})
	defer socket.Close()
	toHost := ipFrame(me.MAC, bridge.Attrs().HardwareAddr, me.Addr, netip.MustParseAddr("10.9.0.1"), []byte("hello"))
	ask := netlab.ARP(me.MAC, me.MAC, me.Addr, netip.MustParseAddr("10.9.0.1"))
	before := delivered(t, a)
	me.arrives(toHost, beside)
	me.arrives(ask, beside)
	if after := delivered(t, a); after != before {
		t.Errorf("the host's IP layer got %d packets", after-before)
	}
	for _, frame := range me.received(nil) {
		if slices.Equal(frame[6:12], bridge.Attrs().HardwareAddr) {
			t.Errorf("the host answers: % x", frame[:42])
		}
	}
	a.do(withoutFilters)
	if me.arrives(toHost, beside); delivered(t, a) == before {
		t.Error("without its filters nothing gets there either: the test proves nothing")
	}
}

func TestThePacketsOfStrangersAreDropped(t *testing.T) {
	a, b := newPair(t)
	vms := connect(t, job1, a, b)
	frame := ipFrame(MAC(1, 7), netlab.Broadcast, vms[0].Addr, vms[1].Addr, []byte("injected"))
	packet := slices.Concat([]byte{8, 0, 0, 0, 0, byte(job1.Job >> 8), byte(job1.Job), 0}, frame)
	inject := func(from string, uid int) error {
		return a.try(func() error { return sendAs(uid, from, "10.9.0.2:299", packet) })
	}
	got := func() bool { return has(vms[1].received(nil), frame) }
	vms[0].reach(vms[1])
	if err := inject("10.9.0.1:0", 0); err != nil || !got() {
		t.Fatalf("what root of a peer sends does not arrive (error %v): the test proves nothing", err)
	}
	if err := inject("10.9.0.1:0", 1000); !errors.Is(err, unix.EPERM) || got() {
		t.Errorf("what an ordinary user of a peer sends: error %v, want EPERM", err)
	}
	a.do(func() error { return a.address("eth0", "10.9.0.77/24") })
	if err := inject("10.9.0.77:0", 0); err != nil || got() {
		t.Errorf("what a host that is no peer sends arrives (error %v)", err)
	}
}

func TestNothingComesInBeforeThePeersAreKnown(t *testing.T) {
	a, b := newPair(t)
	network := func(n *node) Network {
		return Network{ID: job1, Nodes: 2, Underlay: n.underlay, Port: 299}
	}
	a.do(func() error { return Create(t.Context(), network(a)) })
	b.do(func() error { return Create(t.Context(), network(b)) })
	from, to := a.addVM(job1, 0, 0), b.addVM(job1, 1, 0)
	a.do(func() error { return SetPeers(t.Context(), network(a), []netip.Addr{b.underlay.Addr}) })
	others := connect(t, job2, a, b)
	others[0].reach(others[1]) // the nodes know each other, so only a filter can lose packets from here on
	frame := ipFrame(from.MAC, netlab.Broadcast, from.Addr, to.Addr, nil)
	from.send(frame)
	if has(to.received(nil), frame) {
		t.Error("a frame of a node not known yet arrives")
	}
	b.do(func() error { return SetPeers(t.Context(), network(b), []netip.Addr{a.underlay.Addr}) })
	if !from.arrives(frame, to) {
		t.Error("it does not arrive afterwards either")
	}
	b.do(func() error { return SetPeers(t.Context(), network(b), []netip.Addr{a.underlay.Addr}) }) // repeating it is no error
}

func TestABridgeOfTheSite(t *testing.T) {
	n := newNode(t)
	n.do(func() error {
		return errors.Join(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0", MTU: 1400}}), netlab.SetUp("br0"))
	})
	site := func(index int) Tap { return Tap{Index: index, MAC: MAC(job1.Job, index), Bridge: "br0"} }
	me, other := n.plug(job1, site(0)), n.plug(job2, site(1))
	me.Addr, other.Addr = netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("10.1.0.2")
	none := netip.IPv4Unspecified()
	if me.mtu != 1400 {
		t.Errorf("MTU = %d, want the bridge's 1400", me.mtu)
	}
	tests := map[string]struct {
		frame  []byte
		passes bool
	}{
		"any address":                    {ipFrame(me.MAC, netlab.Broadcast, none, other.Addr, nil), true},
		"a DHCP request":                 {udpFrame(me.MAC, netlab.Broadcast, none, other.Addr, 68, nil), true},
		"a DHCP answer":                  {udpFrame(me.MAC, netlab.Broadcast, me.Addr, other.Addr, 67, nil), false},
		"ARP":                            {netlab.ARP(me.MAC, me.MAC, me.Addr, other.Addr), true},
		"ARP with another's MAC":         {netlab.ARP(me.MAC, other.MAC, me.Addr, other.Addr), false},
		"another's MAC":                  {ipFrame(other.MAC, netlab.Broadcast, me.Addr, other.Addr, nil), false},
		"IPv6 neighbour discovery":       {netlab.IPv6(me.MAC, unix.IPPROTO_ICMPV6, 135, 0, 0, 0, 0, 0, 0, 0), true},
		"an IPv6 router's advertisement": {netlab.IPv6(me.MAC, unix.IPPROTO_ICMPV6, 134, 0, 0, 0, 0, 0, 0, 0), false},
		"an IPv6 redirect":               {netlab.IPv6(me.MAC, unix.IPPROTO_ICMPV6, 137, 0, 0, 0, 0, 0, 0, 0), false},
		"a DHCPv6 answer":                {netlab.IPv6(me.MAC, unix.IPPROTO_UDP, 2, 35, 2, 34, 0, 8, 0, 0), false},
		"a VLAN tag":                     {netlab.Frame(me.MAC, netlab.Broadcast, unix.ETH_P_8021Q, []byte{0, 5, 8, 0}), false},
		"a protocol of bridges":          {netlab.Frame(me.MAC, net.HardwareAddr{1, 0x80, 0xc2, 0, 0, 0}, 38, []byte{0x42, 0x42, 3}), false},
	}
	for name, tt := range tests {
		if got := me.arrives(tt.frame, other); got != tt.passes {
			t.Errorf("%s arrives: %v, want %v", name, got, tt.passes)
		}
	}
	n.do(func() error { return Delete(t.Context(), job1) })
	n.do(func() error { _, err := netlink.LinkByName("br0"); return err })
	if diff := cmp.Diff([]string{"table slurmv-4218-0", "tuntap svt396-1", "veth svp396-1", "veth svw396-1"}, n.devices(t)); diff != "" {
		t.Errorf("left beside the site's bridge (-want +got):\n%s", diff)
	}
}

func (n *node) devices(t *testing.T) []string {
	t.Helper()
	var names []string
	n.do(func() error {
		devices, err := allDevices(t.Context())
		for _, d := range devices {
			names = append(names, d.Kind+" "+d.Name)
		}
		return err
	})
	slices.Sort(names)
	return names
}

func TestDeleteLeavesNothing(t *testing.T) {
	a, b := newPair(t)
	connect(t, job1, a, b)
	connect(t, job2, a, b)
	a.addVM(job1, 2, 1)
	want := []string{"bridge svb396", "table slurmv-4218-0", "table slurmv-4218-0", "tuntap svt396-0", "vxlan svx396"}
	for range 2 { // the second time there is nothing to delete
		a.do(func() error { return Delete(t.Context(), job1) })
		if diff := cmp.Diff(want, a.devices(t)); diff != "" {
			t.Errorf("left (-want +got):\n%s", diff)
		}
	}
	a.do(func() error { return Delete(t.Context(), job2) })
	if left := a.devices(t); left != nil {
		t.Errorf("left: %v", left)
	}
	connect(t, job1, a) // and again
}

func TestDeleteKeepsTheNextRunOfAJob(t *testing.T) {
	n := newNode(t)
	next := journal.ID{Job: job1.Job, Restart: 1}
	connect(t, next, n)
	before := n.devices(t)
	n.do(func() error { return Delete(t.Context(), job1) })
	if diff := cmp.Diff(before, n.devices(t)); diff != "" || len(before) == 0 {
		t.Errorf("(-before +after):\n%s", diff)
	}
	err := n.try(func() error { return Create(t.Context(), Network{ID: job1, Nodes: 1}) })
	if err == nil || !strings.Contains(err.Error(), "make bridge svb395: the name or the VXLAN network id is taken") {
		t.Errorf("two runs at once: error = %v", err)
	}
}

func TestDeleteTakesWhatACrashLeftUnmarked(t *testing.T) {
	n := newNode(t)
	n.do(func() error {
		_, err := bridgeport.MakeTap(TapName(job1.Job, 3), 1)
		return errors.Join(err, netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "svbzz"}}))
	})
	n.do(func() error { return Delete(t.Context(), job1) })
	if diff := cmp.Diff([]string{"bridge svbzz"}, n.devices(t)); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

// Several transactions are needed, because each gets an answer per rule.
func TestManyTaps(t *testing.T) {
	n := newNode(t)
	n.do(func() error { return n.lab.Bridge("br0") })
	connect(t, job1, n)
	for name, bridge := range map[string]string{"of the job": "", "of the site": "br0"} {
		t.Run(name, func(t *testing.T) {
			var taps []Tap
			for i := range 3*filtersAtOnce + 1 {
				addr, err := Address(subnet, i)
				if err != nil {
					t.Fatal(err)
				}
				taps = append(taps, Tap{Index: i, MAC: MAC(job2.Job, i), Address: addr, Bridge: bridge})
			}
			if bridge == "" {
				n.do(func() error { return Create(t.Context(), Network{ID: job2, Nodes: 1}) })
			}
			n.do(func() error {
				mtu, err := AddTaps(t.Context(), job2, taps...)
				if mtu != 1500 {
					t.Errorf("MTU = %d, want 1500", mtu)
				}
				return err
			})
			made := slices.DeleteFunc(n.devices(t), func(name string) bool { return !strings.HasPrefix(name, "tuntap svt396-") })
			if len(made) != len(taps) {
				t.Errorf("%d taps instead of %d", len(made), len(taps))
			}
			n.do(func() error { return Delete(t.Context(), job2) })
		})
	}
}

func TestDeleteKeepsLinksOfTheSameGroup(t *testing.T) {
	n := newNode(t)
	connect(t, job1, n)
	n.do(func() error {
		attrs := netlink.LinkAttrs{Name: "foreign0", Group: uint32(linkGroup(job1.Job))}
		return errors.Join(
			netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}),
			Delete(t.Context(), job1))
	})
	if left := n.devices(t); left != nil {
		t.Errorf("left: %v", left)
	}
	n.do(func() error {
		_, err := netlink.LinkByName("foreign0")
		return err
	})
}

func TestErrorsOfATap(t *testing.T) {
	n := newNode(t)
	connect(t, job1, n)
	site := Tap{Index: 5, MAC: MAC(1, 5), Bridge: "br0"}
	taken, noBridge, notOne := Tap{MAC: MAC(1, 0), Address: netip.MustParseAddr("172.30.0.1")}, site, site
	notOne.Bridge = "lo"
	for want, tap := range map[string]Tap{
		"make tap svt395-0: make the device: device or resource busy": taken,
		"make tap svt395-5: bridge br0: Link not found":               noBridge,
		"make tap svt395-5: lo is a device, not a bridge":             notOne,
	} {
		err := n.try(func() error { _, err := AddTaps(t.Context(), job1, tap); return err })
		if err == nil || err.Error() != want {
			t.Errorf("error = %v, want %s", err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := Create(ctx, Network{ID: job2, Nodes: 1}); !errors.Is(err, context.Canceled) {
		t.Errorf("after a cancel: error = %v", err)
	}
}

func TestATapStaysAndIsMarked(t *testing.T) {
	n := newNode(t)
	connect(t, job1, n)
	n.do(func() error {
		link, err := netlink.LinkByName(TapName(job1.Job, 0))
		if err != nil {
			return err
		}
		if tap := link.(*netlink.Tuntap); tap.NonPersist || link.Attrs().Alias != "slurmv 4217.0" {
			t.Errorf("not persistent %v, alias %q", tap.NonPersist, link.Attrs().Alias)
		}
		return nil
	})
}

func TestAutoUnderlayReadsTheNode(t *testing.T) {
	a, _ := newPair(t)
	a.do(func() error {
		found, err := AutoUnderlay("")
		if found != a.underlay || found.MTU != 1500 || found.Interface != "eth0" {
			t.Errorf("the only address: %+v, want %+v", found, a.underlay)
		}
		link, err2 := netlink.LinkByName("eth0")
		lo, err3 := netlink.LinkByName("lo")
		second, err4 := netlink.ParseAddr("192.168.3.4/32")
		if err := errors.Join(err, err2, err3, err4, netlink.AddrAdd(lo, second)); err != nil {
			return err
		}
		if _, err := AutoUnderlay(""); err == nil {
			t.Error("two addresses without a route are clear")
		}
		if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Gw: net.IPv4(10, 9, 0, 2)}); err != nil {
			return err
		}
		if found, err = AutoUnderlay(""); err != nil || found != a.underlay {
			t.Errorf("the default route's: %+v, %v", found, err)
		}
		if found, err = AutoUnderlay("192.168.0.0/16"); err != nil || found.MTU != 1500 || found.Addr.String() != "192.168.3.4" {
			t.Errorf("an address of the loopback: %+v, %v", found, err)
		}
		return nil
	})
}
