package software

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/bridgeport"
	"github.com/slurm-v/slurm-v/internal/netlab"
	"github.com/slurm-v/slurm-v/vfpool/device"
)

func TestAVFIsWhatItWasSetTo(t *testing.T) {
	tests := map[string]struct{ change, want func(*device.Settings) }{
		"no rates":           {},
		"a minimum":          {change: func(s *device.Settings) { s.MinRate = 60 }},
		"a maximum":          {change: func(s *device.Settings) { s.MaxRate = 40 }},
		"both":               {change: func(s *device.Settings) { s.MinRate, s.MaxRate = 10, 20 }},
		"both the same":      {change: func(s *device.Settings) { s.MinRate, s.MaxRate = 10, 10 }},
		"a low maximum":      {change: func(s *device.Settings) { s.MaxRate = 1 }},
		"a VLAN":             {change: func(s *device.Settings) { s.VLAN = 2000 }},
		"no words on a link": {change: func(s *device.Settings) { s.Link = "" }, want: func(s *device.Settings) { s.Link = device.LinkAuto }},
		"a maximum above the PF's rate": {
			change: func(s *device.Settings) { s.MaxRate = 40000 },
			want:   func(s *device.Settings) { s.MaxRate = 0 },
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			set := settings(0)
			if tt.change != nil {
				tt.change(&set)
			}
			l.attach(vf(3), set)
			if tt.want != nil {
				tt.want(&set)
			}
			if diff := cmp.Diff(set, l.state(vf(3))); diff != "" {
				t.Errorf("state (-want +got):\n%s", diff)
			}
		})
	}
}

// What waits for a fast PF is more than the queue length of a link may say: Linux 7 refuses more than 32767 frames.
func TestTheQueueOfAFastPF(t *testing.T) {
	l := newLab(t)
	l.pool = Open(config.VF{Software: map[string]config.SoftwarePF{"soft0": {Bridge: "br0", Rate: 100_000, VFs: 4}}}, true)
	l.attach(vf(0), settings(0))
	var out []byte
	l.do(func() (err error) {
		out, err = exec.CommandContext(t.Context(), "tc", "qdisc", "show", "dev", ifbName("soft0")).Output()
		if frames := linkNamed(ifbName("soft0")).Attrs().TxQLen; frames > 32767 {
			t.Errorf("the link has a queue length of %d", frames)
		}
		return err
	})
	if want := ": parent 1:10 limit 250000000b"; !strings.Contains(string(out), want) {
		t.Errorf("%q is missing in:\n%s", want, out)
	}
}

// The bridge of a VLAN brings the table, and one of its maps, before a VF has been attached.
func TestATableWithoutTheMapOfVFs(t *testing.T) {
	l := newLab(t)
	l.do(func() error { return keepOffHost("svubr0-2000") })
	for range 2 {
		l.do(func() error {
			if mac, err := admitted("svssoft0-3"); mac != "" || err != nil {
				return errors.Join(fmt.Errorf("a VF that is not attached has a filter for %q", mac), err)
			}
			return nil
		})
		l.attach(vf(3), settings(0)) // positive control
		l.do(func() error {
			if mac, err := admitted("svssoft0-3"); mac != settings(0).MAC || err != nil {
				return errors.Join(fmt.Errorf("a VF that is attached has a filter for %q", mac), err)
			}
			return nil
		})
		l.restore(vf(3))
	}
}

func TestPFs(t *testing.T) {
	l := newLab(t)
	l.do(func() error {
		pfs, err := l.pool.PFs()
		if err != nil || len(pfs) != 2 {
			t.Fatalf("%d PFs, error %v", len(pfs), err)
		}
		want := device.PF{
			Name: "soft0", Kind: device.Software, Driver: "bridge br0", LinkLayer: "ether", Speed: 100, Up: true, NUMA: 1, TotalVFs: 4,
			Caps:  device.Caps{MAC: true, VLAN: true, SpoofCheck: true, MinRate: true, MaxRate: true},
			Notes: []device.Reason{{Seen: "bridge br0 has no port that leads to other nodes; VMs in a VLAN reach those on this node only"}},
		}
		vfs := pfs[0].VFs
		pfs[0].VFs = nil
		if diff := cmp.Diff(want, pfs[0]); diff != "" {
			t.Errorf("PF (-want +got):\n%s", diff)
		}
		if len(vfs) != 4 || vfs[3] != (device.VF{PF: "soft0", Index: 3, Kind: device.Software, NUMA: 1, Group: -1, Device: "svfsoft0-3"}) {
			t.Errorf("VFs %+v", vfs)
		}
		return nil
	})
}

func TestAPFThatCannotBeUsedSaysWhy(t *testing.T) {
	for want, change := range map[string]func() error{
		"there is no bridge br0 on this node; make it, or declare another in [vf.software.soft0]": func() error { return remove("br0", "bridge") },
		"bridge br0 is down; set it up: ip link set br0 up":                                       func() error { return netlink.LinkSetDown(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br0"}}) },
		"br0 is a ifb, not a bridge; declare another in [vf.software.soft0]": func() error {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = "br0"
			return errors.Join(remove("br0", "bridge"), netlink.LinkAdd(&netlink.Ifb{LinkAttrs: attrs}))
		},
	} {
		l := newLab(t)
		l.do(change)
		l.do(func() error {
			pfs, err := l.pool.PFs()
			if err == nil && pfs[0].Unusable.String() != want {
				t.Errorf("unusable: %q, want %q", pfs[0].Unusable, want)
			}
			return err
		})
	}
}

func TestWhatCannotBeSetIsRefused(t *testing.T) {
	l := newLab(t)
	tests := map[string]struct {
		vf     device.VF
		change func(*device.Settings)
		want   string
	}{
		"a PF that is not declared": {vf: device.VF{PF: "x"}, want: "no software PF of that name is declared; see [vf.software.x] in the configuration"},
		"a VF too many":             {vf: vf(4), want: "it has VFs 0 to 3"},
		"no MAC":                    {change: func(s *device.Settings) { s.MAC = "" }, want: `MAC "" is not a station's address`},
		"a multicast MAC":           {change: func(s *device.Settings) { s.MAC = "01:00:5e:00:00:01" }, want: `MAC "01:00:5e:00:00:01" is not a station's address`},
		"a tag too high":            {change: func(s *device.Settings) { s.VLAN = 4095 }, want: "VLAN 4095 is not a tag from 1 to 4094, or 0 for none"},
		"a minimum above the PF's":  {change: func(s *device.Settings) { s.MinRate = 101 }, want: "the minimum of 101 Mb/s is above the PF's 100"},
		"a maximum below":           {change: func(s *device.Settings) { s.MinRate, s.MaxRate = 20, 10 }, want: "the maximum of 10 Mb/s is below the minimum of 20"},
		"no check of sources":       {change: func(s *device.Settings) { s.SpoofCheck = false }, want: "the check of source addresses cannot be switched off"},
		"trust":                     {change: func(s *device.Settings) { s.Trust = true }, want: "a software VF cannot be trusted: what its guest may send is fixed"},
		"a link that is off":        {change: func(s *device.Settings) { s.Link = device.LinkDisable }, want: "link state disable cannot be set, only auto"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			set, target := settings(0), tt.vf
			if target.PF == "" {
				target = vf(0)
			}
			if tt.change != nil {
				tt.change(&set)
			}
			want := fmt.Sprintf("set VF %d of %s (%s): %s", target.Index, target.PF, tapName(target.PF, target.Index), tt.want)
			err := l.node.Do(func() error { return l.pool.Apply(t.Context(), target, set) })
			if err == nil || err.Error() != want {
				t.Errorf("error = %v\nwant    %s", err, want)
			}
		})
	}
	if left := l.links(); left != nil {
		t.Errorf("made nevertheless: %v", left)
	}
}

func TestABridgeThatVanishes(t *testing.T) {
	l := newLab(t)
	l.do(func() error {
		return errors.Join(l.pool.Apply(t.Context(), vf(0), settings(0)), remove("br0", "bridge"))
	})
	err := l.node.Do(func() error { return l.pool.Attach(t.Context(), vf(0), account) })
	const want = "attach VF 0 of soft0 (svfsoft0-0): there is no bridge br0 on this node; make it, or declare another in [vf.software.soft0]"
	if err == nil || err.Error() != want {
		t.Errorf("error = %v\nwant    %s", err, want)
	}
	l.restore(vf(0))
}

func TestATapThatExistsIsNotTaken(t *testing.T) {
	l := newLab(t)
	g := l.boot(vf(0), settings(0))
	err := l.node.Do(func() error { return l.pool.Attach(t.Context(), vf(0), account) })
	if err == nil || !strings.Contains(err.Error(), "a tuntap svfsoft0-0 exists; what an earlier job left goes with 'slurmv clean'") {
		t.Errorf("error = %v", err)
	}
	l.restore(vf(0)) // though its VM has it open
	if err := g.Send(make([]byte, 60)); err == nil {
		t.Error("its VM can still send")
	}
	l.boot(vf(0), settings(0))
}

func TestWhatIsNotOursIsLeftAlone(t *testing.T) {
	l := newLab(t)
	l.do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = tapName("soft0", 0)
		return netlink.LinkAdd(&netlink.Ifb{LinkAttrs: attrs})
	})
	err := l.node.Do(func() error { return l.pool.Restore(t.Context(), vf(0), device.State{}) })
	if err == nil || !strings.Contains(err.Error(), `svfsoft0-0 is not ours: a ifb with alias ""; rename it`) {
		t.Errorf("error = %v", err)
	}
	if diff := cmp.Diff([]string{"ifb svfsoft0-0"}, l.links()); diff != "" {
		t.Errorf("links (-want +got):\n%s", diff)
	}
}

func TestVFsReachEachOtherAndTheBridge(t *testing.T) {
	l := newLab(t)
	a, b := l.boot(vf(0), settings(0)), l.boot(vf(1), settings(1))
	c := l.boot(device.VF{PF: "software-two", Index: 0}, settings(2))
	for name, to := range map[string]*guest{"of the same PF": b, "of another PF": c} {
		if full := a.flow(to, 7).UDP(make([]byte, 1472)); !a.arrives(full, to) {
			t.Errorf("a packet of 1500 bytes does not arrive at a VF %s", name)
		}
		if !to.arrives(netlab.ARP(to.MAC, to.MAC, to.Addr, a.Addr), a) {
			t.Errorf("ARP does not arrive from a VF %s", name)
		}
	}
}

func TestWhatAVMMayNotSend(t *testing.T) {
	l := newLab(t)
	me, other := l.boot(vf(0), settings(0)), l.boot(vf(1), settings(1))
	any4, out := netip.MustParseAddr("10.9.9.9"), netlab.Broadcast
	from := func(mac net.HardwareAddr, addr netip.Addr, port uint16) []byte {
		return netlab.Flow{FromMAC: mac, ToMAC: out, From: netip.AddrPortFrom(addr, port), To: netip.AddrPortFrom(other.Addr, 9)}.UDP(nil)
	}
	discovery := func(kind byte) []byte { return netlab.IPv6(me.MAC, unix.IPPROTO_ICMPV6, kind, 0, 0, 0, 0, 0, 0, 0) }
	bridges := net.HardwareAddr{1, 0x80, 0xc2, 0, 0, 0}
	tests := map[string]struct {
		frame  []byte
		passes bool
	}{
		"any address":                    {from(me.MAC, any4, 7), true},
		"a DHCP request":                 {from(me.MAC, any4, 68), true},
		"a DHCP answer":                  {from(me.MAC, any4, 67), false},
		"another's MAC":                  {from(other.MAC, me.Addr, 7), false},
		"nobody's MAC":                   {from(macOfVM(9), me.Addr, 7), false},
		"the host's end's MAC":           {from(bridgeport.HostMAC(me.MAC), me.Addr, 7), false},
		"ARP":                            {netlab.ARP(me.MAC, me.MAC, me.Addr, other.Addr), true},
		"ARP with another's MAC":         {netlab.ARP(me.MAC, other.MAC, me.Addr, other.Addr), false},
		"ARP from another's MAC":         {netlab.ARP(other.MAC, me.MAC, me.Addr, other.Addr), false},
		"IPv6 neighbour discovery":       {discovery(135), true},
		"an IPv6 router's advertisement": {discovery(134), false},
		"an IPv6 redirect":               {discovery(137), false},
		"a DHCPv6 answer":                {netlab.IPv6(me.MAC, unix.IPPROTO_UDP, 2, 35, 2, 34, 0, 8, 0, 0), false},
		"a VLAN tag":                     {netlab.Frame(me.MAC, out, unix.ETH_P_8021Q, []byte{0, 5, 8, 0}), false},
		"a tag of another kind":          {netlab.Frame(me.MAC, out, unix.ETH_P_8021AD, []byte{0, 5, 8, 0}), false},
		"a protocol of bridges":          {netlab.Frame(me.MAC, bridges, 38, []byte{0x42, 0x42, 3}), false},
		"an unknown protocol":            {netlab.Frame(me.MAC, out, 0x1234), false},
	}
	for name, tt := range tests {
		if got := me.arrives(tt.frame, other); got != tt.passes {
			t.Errorf("%s arrives: %v, want %v", name, got, tt.passes)
		}
	}
}

// A class pays for a frame by its source, before the filter has seen the frame.
func TestForgedFramesSpendNobodysShare(t *testing.T) {
	l := newLab(t)
	me, other := l.boot(vf(0), settings(0)), l.boot(vf(1), settings(1))
	if !me.reaches(other) || !other.reaches(me) {
		t.Fatal("nothing arrives")
	}
	before := [2]uint64{l.sent(0), l.sent(1)}
	if before[0] == 0 || before[1] == 0 {
		t.Fatalf("classes have sent %v bytes: frames do not come by them", before)
	}
	forged := other.flow(me, 7)
	for range 100 {
		me.send(forged.UDP(make([]byte, 1000)))
	}
	me.received(nil)
	if after := [2]uint64{l.sent(0), l.sent(1)}; after != before {
		t.Errorf("the classes have sent %v bytes, before the forged ones %v", after, before)
	}
}

// sent returns how many bytes the class of a VF has let go.
func (l *lab) sent(index int) (bytes uint64) {
	l.t.Helper()
	l.do(func() error {
		ifb, err := netlink.LinkByName(ifbName("soft0"))
		if err != nil {
			return err
		}
		classes, err := netlink.ClassList(ifb, 0)
		for _, c := range classes {
			if a := c.Attrs(); a.Handle == leaf(index) {
				bytes = a.Statistics.Basic.Bytes
			}
		}
		return err
	})
	return bytes
}

func TestVLANsDoNotReachEachOther(t *testing.T) {
	l := newLab(t)
	in := func(number int, tag uint16) device.Settings {
		s := settings(number)
		s.VLAN = tag
		return s
	}
	first, second := l.boot(vf(0), in(0, 2000)), l.boot(vf(1), in(1, 2000))
	same := l.boot(device.VF{PF: "software-two", Index: 1}, in(2, 2000))
	foreign, untagged := l.boot(vf(2), in(3, 2001)), l.boot(vf(3), in(4, 0))
	for name, to := range map[string]*guest{"of the same PF": second, "of another PF": same} {
		if !first.reaches(to) {
			t.Errorf("nothing gets to a VF in the same VLAN %s", name)
		}
	}
	// The VM that must not hear a frame does hear other frames.
	spare := device.VF{PF: "software-two", Index: 0}
	for tag, other := range map[uint16]*guest{2001: foreign, 0: untagged} {
		if !l.boot(spare, in(5, tag)).reaches(other) {
			t.Fatalf("nothing gets to a VF with the VLAN %d", tag)
		}
		l.restore(spare)
	}
	frame := first.flow(second, 7).UDP([]byte("to everybody"))
	if !first.arrives(frame, second) {
		t.Fatal("a broadcast does not arrive in the VLAN")
	}
	for name, g := range map[string]*guest{"in another VLAN": foreign, "in none": untagged} {
		if has(g.received(nil), frame) {
			t.Errorf("a broadcast arrives at a VF %s", name)
		}
	}
	l.restore(vf(2))
	if diff := cmp.Diff([]string{"bridge svvbr0-2000", "ifb svi0ylk63z", "ifb svisoft0",
		"tuntap svf0ylk63z-1", "tuntap svfsoft0-0", "tuntap svfsoft0-1", "tuntap svfsoft0-3"}, l.withoutWires()); diff != "" {
		t.Errorf("links when the last of a VLAN is gone (-want +got):\n%s", diff)
	}
	if !first.reaches(same) {
		t.Error("the others' VLAN is gone too")
	}
}

func TestAVLANOfTwoNodes(t *testing.T) {
	kinds := map[string]struct {
		before  func() error // the nodes' bridges are joined
		after   func(uplink netlink.Link) error
		lacking string
		bridge  string
	}{
		"by 802.1Q devices": {
			before: func() error { return nil },
			after: func(uplink netlink.Link) error {
				if !has8021Q(uplink) {
					return unix.EOPNOTSUPP
				}
				return nil
			},
			lacking: "the kernel has no 802.1Q: load 8021q", bridge: "svvbr0-2000",
		},
		"by bridges that filter": {
			before: func() error {
				attrs, filter := netlink.NewLinkAttrs(), true
				attrs.Name = "br0"
				return errors.Join(remove("br0", "bridge"), netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs, VlanFiltering: &filter}))
			},
			after: func(uplink netlink.Link) error {
				return errors.Join(netlab.SetUp("br0"), netlink.BridgeVlanAdd(uplink, 2000, false, false, false, true),
					netlink.BridgeVlanAdd(uplink, 2001, false, false, false, true))
			},
			lacking: "the kernel's bridges do not filter VLANs: use one with CONFIG_BRIDGE_VLAN_FILTERING", bridge: "br0",
		},
	}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			a, b := newLab(t), newLab(t)
			must := func(l *lab, f func() error) {
				if err := l.node.Do(f); errors.Is(err, unix.EOPNOTSUPP) {
					t.Skip(kind.lacking)
				} else if err != nil {
					t.Fatal(err)
				}
			}
			must(a, kind.before)
			must(b, kind.before)
			if err := a.node.Join("br0", b.node); err != nil {
				t.Fatal(err)
			}
			for l, link := range map[*lab]string{a: "uplink", b: "eth0"} {
				must(l, func() error {
					uplink, err := netlink.LinkByName(link)
					if err != nil {
						return err
					}
					return kind.after(uplink)
				})
			}
			testVLANOfTwoNodes(t, a, b, kind.bridge)
		})
	}
}

func testVLANOfTwoNodes(t *testing.T, a, b *lab, bridge string) {
	in := func(number int, tag uint16) device.Settings {
		s := settings(number)
		s.VLAN = tag
		return s
	}
	here, there := a.boot(vf(0), in(0, 2000)), b.boot(vf(0), in(1, 2000))
	others := map[string]*guest{
		"in another VLAN beside it": a.boot(vf(1), in(2, 2001)), "in no VLAN beside it": a.boot(vf(2), in(3, 0)),
		"in another VLAN": b.boot(vf(1), in(4, 2001)), "in no VLAN": b.boot(vf(2), in(5, 0)),
	}
	if diff := cmp.Diff(in(0, 2000), a.state(vf(0))); diff != "" {
		t.Errorf("state (-want +got):\n%s", diff)
	}
	frame := here.flow(there, 7).UDP([]byte("to everybody"))
	if !here.arrives(frame, there) {
		t.Error("a broadcast does not arrive in the VLAN")
	}
	if !others["in no VLAN beside it"].reaches(others["in no VLAN"]) {
		t.Error("nothing arrives between those in no VLAN")
	}
	if !others["in another VLAN beside it"].reaches(others["in another VLAN"]) {
		t.Error("nothing arrives between those in another VLAN")
	}
	for name, g := range others {
		for _, got := range g.received(nil) {
			if strings.Contains(string(got), "to everybody") {
				t.Errorf("it arrives %s", name)
			}
		}
	}
	a.do(func() error {
		tap, err := netlink.LinkByName("svssoft0-0")
		if err != nil {
			return err
		}
		master, err := netlink.LinkByIndex(tap.Attrs().MasterIndex)
		if err == nil && master.Attrs().Name != bridge {
			t.Errorf("the tap is on %s, want %s", master.Attrs().Name, bridge)
		}
		pfs, err := a.pool.PFs()
		if err == nil && pfs[0].Notes != nil {
			t.Errorf("notes: %v", pfs[0].Notes)
		}
		return err
	})
	for i := range 3 {
		a.restore(vf(i))
	}
	if diff := cmp.Diff([]string{"veth uplink"}, a.links()); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

// The bridge of a VLAN has no address of the host, but Linux takes packets for any of its
// addresses from any link.
func TestWhatAVMSendsToTheHost(t *testing.T) {
	for name, tt := range map[string]struct {
		tag     uint16
		bridge  string
		arrives bool
	}{"on the declared bridge it arrives": {0, "br0", true}, "on a VLAN's it does not": {2000, "svvbr0-2000", false}} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t)
			mine, others := settings(0), settings(1)
			mine.VLAN, others.VLAN = tt.tag, tt.tag
			me, beside := l.boot(vf(0), mine), l.boot(vf(1), others)
			host := netip.MustParsePrefix("10.1.0.100/24")
			if err := l.node.Address("br0", host); err != nil {
				t.Fatal(err)
			}
			packet := me.flow(beside, 7)
			packet.ToMAC, packet.To = l.mac(tt.bridge), netip.AddrPortFrom(host.Addr(), 9)
			if !me.reaches(beside) {
				t.Fatal("nothing arrives anywhere")
			}
			before := l.delivered()
			me.arrives(packet.UDP(nil), beside)
			if got := l.delivered() > before; got != tt.arrives {
				t.Errorf("a packet arrives: %v, want %v", got, tt.arrives)
			}
		})
	}
}

func (l *lab) mac(link string) (mac net.HardwareAddr) {
	l.t.Helper()
	l.do(func() error {
		found, err := netlink.LinkByName(link)
		if err == nil {
			mac = found.Attrs().HardwareAddr
		}
		return err
	})
	return mac
}

// delivered returns how many packets for one of its ports the node's IP layer has
// received, though no program listens there.
func (l *lab) delivered() (count uint64) {
	l.t.Helper()
	l.do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/snmp")
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(text)) {
			var in uint64
			if k, _ := fmt.Sscanf(line, "Udp: %d %d", &in, &count); k == 2 {
				return nil
			}
		}
		return errors.New("no counters in /proc/net/snmp")
	})
	return count
}

func TestRestoreLeavesNothing(t *testing.T) {
	l := newLab(t)
	tagged := settings(1)
	tagged.VLAN = 2000
	l.attach(vf(0), settings(0))
	l.attach(vf(1), tagged)
	a, b := l.plug(vf(0), macOfVM(0)), l.boot(vf(2), settings(2))
	for range 2 { // the second time there is nothing to restore
		l.restore(vf(1))
		if diff := cmp.Diff([]string{"ifb svisoft0", "tuntap svfsoft0-0", "tuntap svfsoft0-2",
			"veth svnsoft0-0", "veth svnsoft0-2", "veth svssoft0-0", "veth svssoft0-2"}, l.links()); diff != "" {
			t.Errorf("links (-want +got):\n%s", diff)
		}
		if s := l.state(vf(1)); s != (device.Settings{}) {
			t.Errorf("state %+v", s)
		}
		if !a.reaches(b) || a.arrives(b.flow(a, 7).UDP(nil), b) {
			t.Error("the others' filters are not what they were")
		}
	}
	l.restore(vf(0))
	l.restore(vf(2))
	l.empty()
}

func (l *lab) empty() {
	l.t.Helper()
	if left := l.links(); left != nil {
		l.t.Errorf("left: %v", left)
	}
	l.do(func() error {
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		tables, err := conn.ListTables()
		if len(tables) > 0 {
			l.t.Errorf("left: table %s", tables[0].Name)
		}
		return err
	})
}

// Without the filter, the node would answer what comes by the bridge.
func TestTheBridgeOfAVLANGoesBeforeItsFilter(t *testing.T) {
	l := newLab(t)
	tagged := settings(0)
	tagged.VLAN = 2000
	l.attach(vf(0), tagged)
	inTheWay := uplinkName("svvbr0-2000") // is not ours, so the bridge stays
	l.do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = inTheWay
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs})
	})
	l.do(func() error {
		if err := l.pool.Restore(t.Context(), vf(0), device.State{}); err == nil {
			t.Error("no error, and the bridge is left")
		}
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		if table, err := findTable(conn); err != nil || table == nil {
			t.Errorf("the bridge stands, and its filter is gone (%v)", err)
		}
		other, err := netlink.LinkByName(inTheWay)
		return errors.Join(err, netlink.LinkDel(other))
	})
	l.restore(vf(0))
	l.empty()
}

// A crash may come after any step, and between making and marking a link.
func TestRestoreFromAnyHalfState(t *testing.T) {
	l := newLab(t)
	tagged := settings(0)
	tagged.VLAN = 2000
	var p port
	l.do(func() (err error) {
		p, err = l.pool.port(vf(0), tagged)
		return err
	})
	bare := func(link func(netlink.LinkAttrs) netlink.Link, name string) func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		return func() error { return netlink.LinkAdd(link(attrs)) }
	}
	var ifb, plug netlink.Link
	steps := []func() error{
		func() error { _, err := p.seat(); return err },
		func() (err error) { ifb, err = p.pf.makeIFB(); return err },
		func() error { return setClass(ifb, trunk, leaf(0), htbClass{1000, 1000, 1600}) },
		func() error { return p.addClass(ifb) },
		func() error { return p.filter(seat{}) },
		func() error { _, err := bridgeport.MakeTap(p.tap, 1); return err },
		func() error {
			attrs := netlink.NewLinkAttrs()
			attrs.Name = wireEndName("soft0", 0)
			return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: p.plug})
		},
		func() (err error) {
			plug, err = netlink.LinkByName(p.plug)
			return errors.Join(err, p.redirect(plug, ifb))
		},
	}
	for last := range steps {
		for _, step := range steps[:last+1] {
			l.do(step)
		}
		l.restore(vf(0))
		l.empty()
	}
	for _, step := range []func() error{
		bare(func(a netlink.LinkAttrs) netlink.Link { return &netlink.Bridge{LinkAttrs: a} }, "svvbr0-2000"),
		bare(func(a netlink.LinkAttrs) netlink.Link { return &netlink.Ifb{LinkAttrs: a} }, "svisoft0"),
	} {
		l.do(step)
		l.attach(vf(1), tagged) // takes what is there
		l.restore(vf(1))
		l.empty()
		l.do(step)
		l.restore(vf(0))
		l.empty()
	}
}

func TestRestoreWhatIsNotDeclaredAnyMore(t *testing.T) {
	l := newLab(t)
	l.attach(vf(0), settings(0))
	l.pool = Open(declared(), true)
	l.pool.cfg.Software = nil
	l.restore(vf(0))
	l.empty()
}

// QEMU opens the tap with a header that describes frames not yet cut into pieces.
func TestATapIsMadeForQEMU(t *testing.T) {
	l := newLab(t)
	l.attach(vf(0), settings(0))
	l.do(func() error {
		link, err := netlink.LinkByName("svfsoft0-0")
		if err != nil {
			return err
		}
		tap := link.(*netlink.Tuntap)
		if tap.NonPersist || tap.Flags&netlink.TUNTAP_VNET_HDR == 0 || tap.Flags&netlink.TUNTAP_MULTI_QUEUE != 0 {
			t.Errorf("not persistent %v, flags %x", tap.NonPersist, tap.Flags)
		}
		port, err := netlink.LinkByName("svssoft0-0")
		if err != nil {
			return err
		}
		if a := port.Attrs(); a.Alias != "slurmv vf soft0/0" || tap.Alias != a.Alias || a.HardwareAddr.String() != "fe:ff:04:1e:40:00" {
			t.Errorf("aliases %q and %q, the host's address %v", tap.Alias, a.Alias, a.HardwareAddr)
		}
		return nil
	})
}

// A setting that did not take effect must not go unnoticed.
func TestTheCheckNoticesWhatIsOtherwise(t *testing.T) {
	changes := map[string]func(*lab, port) error{
		"the tap is down":          func(l *lab, p port) error { return netlink.LinkSetDown(linkNamed(p.tap)) },
		"the port is down":         func(l *lab, p port) error { return netlink.LinkSetDown(linkNamed(p.plug)) },
		"another alias":            func(l *lab, p port) error { return netlink.LinkSetAlias(linkNamed(p.plug), "slurmv vf soft0/1") },
		"no bridge":                func(l *lab, p port) error { return netlink.LinkSetNoMaster(linkNamed(p.plug)) },
		"no filter":                func(l *lab, p port) error { return removeFilterOf(p.plug) },
		"a tap that is somebody's": func(l *lab, p port) error { return giveAway(p.tap) },
		"no wire":                  func(l *lab, p port) error { return noIngress(p.tap) },
		"no way back":              func(l *lab, p port) error { return noIngress(wireEndName("soft0", 0)) },
		"another's MAC": func(l *lab, p port) error {
			p.mac = macOfVM(1)
			return p.filter(seat{})
		},
		"another rate": func(l *lab, p port) error {
			ifb, err := netlink.LinkByName("svisoft0")
			return errors.Join(err, setClass(ifb, trunk, leaf(0), p.pf.shape(1, 2)))
		},
		"no way to the class": func(l *lab, p port) error {
			ifb, err := netlink.LinkByName("svisoft0")
			return errors.Join(err, removeFilter(ifb, 0))
		},
		"no way to the IFB": func(l *lab, p port) error { return noIngress(p.plug) },
	}
	for name, change := range changes {
		l := newLab(t)
		l.attach(vf(0), settings(0))
		l.do(func() error {
			p, err := l.pool.port(vf(0), settings(0))
			if err != nil {
				return err
			}
			at, err := p.seat()
			if err = errors.Join(err, p.check(at)); err != nil {
				return err
			}
			if err := change(l, p); err != nil {
				return err
			}
			if err := p.check(at); err == nil || !strings.Contains(err.Error(), "the kernel has") {
				t.Errorf("%s: error = %v", name, err)
			}
			return nil
		})
	}
}

func noIngress(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.QdiscDel(&netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: link.Attrs().Index, Handle: bridgeport.Ingress, Parent: netlink.HANDLE_INGRESS,
	}})
}

// giveAway does to a tap what a program that has it open may do.
func giveAway(tap string) error {
	file, err := netlab.OpenTap(tap)
	if err != nil {
		return err
	}
	defer file.Close()
	return unix.IoctlSetInt(int(file.Fd()), unix.TUNSETOWNER, 65534)
}

func linkNamed(name string) netlink.Link {
	return &netlink.Tuntap{LinkAttrs: netlink.LinkAttrs{Name: name}}
}

func TestACancelledAttach(t *testing.T) {
	l := newLab(t)
	ctx, cancel := context.WithCancel(t.Context())
	l.do(func() error { return l.pool.Apply(ctx, vf(0), settings(0)) })
	cancel()
	err := l.node.Do(func() error { return l.pool.Attach(ctx, vf(0), account) })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v", err)
	}
	l.empty()
}

func TestWhatIsBusyIsTriedAgain(t *testing.T) {
	tries := 0
	err := again(t.Context(), func() error {
		tries++
		if tries < 3 {
			return fmt.Errorf("delete it: %w", unix.EBUSY)
		}
		return nil
	})
	if err != nil || tries != 3 {
		t.Errorf("%d tries, error %v", tries, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := again(ctx, func() error { return unix.EBUSY }); !errors.Is(err, unix.EBUSY) {
		t.Errorf("when time is up: error = %v", err)
	}
	if err := again(t.Context(), func() error { return os.ErrInvalid }); !errors.Is(err, os.ErrInvalid) {
		t.Errorf("another error = %v", err)
	}
}

// libvirt opens the tap, not the job's owner. If the owner gets hold of it by tracing
// QEMU, they can change nothing on the bridge. With an ordinary tap they could do both.
func TestAVFsTapIsNobodys(t *testing.T) {
	l := newLab(t)
	l.attach(vf(0), settings(0))
	l.do(func() error {
		_, err := bridgeport.MakeTap("control", 1)
		return errors.Join(err, giveAway("control"), netlab.Enslave("control", "br0"))
	})
	for tap, control := range map[string]bool{"svfsoft0-0": false, "control": true} {
		if opened, err := l.node.OpenTapAsNobody(tap); (err == nil) != control || !control && !errors.Is(err, unix.EPERM) {
			t.Errorf("an ordinary user opens %s: error = %v", tap, err)
		} else if opened != nil {
			opened.Close()
		}
		mac := net.HardwareAddr{2, 9, 9, 9, 9, tap[0]}
		held := l.takeAway(tap, mac)
		if taken := l.knows(mac); taken != control {
			t.Errorf("the bridge takes an address from %s: %v, want %v", tap, taken, control)
		}
		held.Close()
	}
	l.restore(vf(0)) // though the tap has vanished
	l.empty()
}

// takeAway changes a tap as its holder may: it gives the tap another address, and makes it
// vanish when the holder closes it.
func (l *lab) takeAway(name string, mac net.HardwareAddr) (tap *os.File) {
	l.t.Helper()
	l.do(func() (err error) {
		tap, err = netlab.OpenTap(name)
		return err
	})
	err := l.node.AsNobody(func() error {
		return errors.Join(netlab.SetMAC(tap, mac), unix.IoctlSetInt(int(tap.Fd()), unix.TUNSETPERSIST, 0))
	})
	if err != nil {
		l.t.Fatal(err)
	}
	return tap
}

// knows reports whether a bridge of the node has a station's address.
func (l *lab) knows(mac net.HardwareAddr) (found bool) {
	l.t.Helper()
	l.do(func() error {
		entries, err := netlink.NeighList(0, unix.AF_BRIDGE)
		found = slices.ContainsFunc(entries, func(e netlink.Neigh) bool { return slices.Equal(e.HardwareAddr, mac) })
		return err
	})
	return found
}

// A VM may still have the tap of a VF that nobody remembers.
func TestATapThatIsOpenIsNotReset(t *testing.T) {
	l := newLab(t)
	l.attach(vf(0), settings(0))
	var tap *os.File
	l.do(func() (err error) {
		tap, err = netlab.OpenTap(tapName("soft0", 0))
		return err
	})
	l.do(func() error {
		if err := l.pool.Reset(t.Context(), vf(0)); !errors.Is(err, unix.EBUSY) {
			t.Errorf("error = %v", err)
		}
		return errors.Join(tap.Close(), l.pool.Reset(t.Context(), vf(0)))
	})
	l.empty()
}
