package software

import (
	"bytes"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/netlab"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/vfpool/device"
)

// A lab is a node with a declared bridge.
type lab struct {
	t    testing.TB
	node *netlab.Node
	pool *Bridges
}

var account = owner.IDs{UID: 1000, GID: 1001}

// declared returns two PFs on one bridge; the second has a long name.
func declared() config.VF {
	return config.VF{Reserve: 5, Software: map[string]config.SoftwarePF{
		"soft0":        {Bridge: "br0", Rate: 100, VFs: 4, NUMA: 1},
		"software-two": {Bridge: "br0", Rate: 1000, VFs: 2, NUMA: -1},
	}}
}

func newLab(t testing.TB) *lab {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("makes network namespaces: run as root")
	}
	node, err := netlab.NewNode()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { node.Close() })
	if err := node.Bridge("br0"); err != nil {
		t.Fatal(err)
	}
	return &lab{t: t, node: node, pool: Open(declared(), true)}
}

func (l *lab) do(f func() error) {
	l.t.Helper()
	if err := l.node.Do(f); err != nil {
		l.t.Fatal(err)
	}
}

// vf returns a VF of the PF soft0.
func vf(index int) device.VF { return device.VF{PF: "soft0", Index: index, Kind: device.Software} }

// macOfVM returns addresses like those that jobs get.
func macOfVM(number int) net.HardwareAddr { return net.HardwareAddr{2, 0, 4, 0x1e, 0x40, byte(number)} }

func settings(number int) device.Settings {
	return device.Settings{MAC: macOfVM(number).String(), SpoofCheck: true, Link: device.LinkAuto}
}

func (l *lab) attach(vf device.VF, want device.Settings) {
	l.t.Helper()
	l.do(func() error {
		if err := l.pool.Apply(l.t.Context(), vf, want); err != nil {
			return err
		}
		return l.pool.Attach(l.t.Context(), vf, account)
	})
}

func (l *lab) restore(vf device.VF) {
	l.t.Helper()
	l.do(func() error { return l.pool.Restore(l.t.Context(), vf, device.State{}) })
}

func (l *lab) state(vf device.VF) device.Settings {
	l.t.Helper()
	var state device.State
	l.do(func() (err error) {
		state, err = l.pool.State(l.t.Context(), vf)
		return err
	})
	return state.Settings
}

// links returns the links other than the bridge and the loopback device.
func (l *lab) links() (names []string) {
	l.t.Helper()
	l.do(func() error {
		links, err := netlink.LinkList()
		for _, link := range links {
			if name := link.Attrs().Name; name != "lo" && name != "br0" {
				names = append(names, link.Type()+" "+name)
			}
		}
		return err
	})
	slices.Sort(names)
	return names
}

// withoutWires returns the links without the plug and the wire of each VF.
func (l *lab) withoutWires() []string {
	l.t.Helper()
	return slices.DeleteFunc(l.links(), func(name string) bool { return strings.HasPrefix(name, "veth ") })
}

// A guest is a VM with one VF.
type guest struct {
	*netlab.Guest
	t testing.TB
}

// boot attaches a VF and opens it.
func (l *lab) boot(vf device.VF, want device.Settings) *guest {
	l.t.Helper()
	l.attach(vf, want)
	mac, err := net.ParseMAC(want.MAC)
	if err != nil {
		l.t.Fatal(err)
	}
	return l.plug(vf, mac)
}

func (l *lab) plug(vf device.VF, mac net.HardwareAddr) *guest {
	l.t.Helper()
	addr := netip.AddrFrom4([4]byte{10, 1, 0, 1 + mac[5]})
	g, err := l.node.Plug(tapName(vf.PF, vf.Index), mac, addr)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(func() { g.Close() })
	return &guest{g, l.t}
}

func (g *guest) flow(to *guest, port uint16) netlab.Flow {
	return netlab.Flow{FromMAC: g.MAC, ToMAC: netlab.Broadcast, From: netip.AddrPortFrom(g.Addr, port), To: netip.AddrPortFrom(to.Addr, 9)}
}

func (g *guest) send(frame []byte) {
	g.t.Helper()
	if err := g.Send(frame); err != nil {
		g.t.Fatal(err)
	}
}

func (g *guest) received(marker []byte) [][]byte {
	g.t.Helper()
	frames, err := g.Received(marker)
	if err != nil {
		g.t.Fatal(err)
	}
	return frames
}

// arrives reports whether frame, which g sends, comes out at to. g then sends a second
// frame that certainly may pass: once that has arrived, the first has arrived or never
// will.
func (g *guest) arrives(frame []byte, to *guest) bool {
	g.t.Helper()
	if !g.reaches(to) {
		g.t.Fatalf("nothing gets from %v to %v", g.Addr, to.Addr)
	}
	for range 50 {
		g.send(frame)
		marker := g.sendMarker(to)
		if got := to.received(marker); has(got, marker) {
			return has(got, frame)
		}
	}
	g.t.Fatalf("what %v sends to %v comes and goes", g.Addr, to.Addr)
	return false
}

// reaches waits until frames get from g to to: a bridge's port works a moment after its
// link.
func (g *guest) reaches(to *guest) bool {
	g.t.Helper()
	for range 20 {
		if marker := g.sendMarker(to); has(to.received(marker), marker) {
			return true
		}
	}
	return false
}

func (g *guest) sendMarker(to *guest) []byte {
	g.t.Helper()
	marker := g.flow(to, 1).UDP(fmt.Appendf(nil, "marker %d", time.Now().UnixNano()))
	g.send(marker)
	return marker
}

// has reports whether frame is among frames; a bridge cuts off the padding.
func has(frames [][]byte, frame []byte) bool {
	return slices.ContainsFunc(frames, func(f []byte) bool { return bytes.HasPrefix(frame, f) })
}
