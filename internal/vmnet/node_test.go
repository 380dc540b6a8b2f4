package vmnet

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/internal/netlab"
	"github.com/slurm-v/slurm-v/journal"
)

// A node is a network namespace that stands for a node of the cluster.
type node struct {
	t        *testing.T
	lab      *netlab.Node
	underlay Underlay
}

func newNode(t *testing.T) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("makes network namespaces: run as root")
	}
	lab, err := netlab.NewNode()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lab.Close() })
	return &node{t: t, lab: lab}
}

// try runs f in the node's network namespace.
func (n *node) try(f func() error) error { return n.lab.Do(f) }

func (n *node) do(f func() error) {
	n.t.Helper()
	if err := n.try(f); err != nil {
		n.t.Fatal(err)
	}
}

// newPair makes two nodes with a cable between them.
func newPair(t *testing.T) (a, b *node) {
	t.Helper()
	a, b = newNode(t), newNode(t)
	if err := a.lab.Wire(b.lab); err != nil {
		t.Fatal(err)
	}
	for n, addr := range map[*node]string{a: "10.9.0.1/24", b: "10.9.0.2/24"} {
		if err := n.address("eth0", addr); err != nil {
			t.Fatal(err)
		}
	}
	return a, b
}

func (n *node) address(name, addr string) error {
	if err := n.lab.Address(name, netip.MustParsePrefix(addr)); err != nil {
		return err
	}
	return n.try(func() (err error) {
		n.underlay, err = AutoUnderlay("10.9.0.0/24")
		return err
	})
}

// connect makes the network of a job on nodes, each of which then has a VM.
func connect(t *testing.T, id journal.ID, nodes ...*node) []*vm {
	t.Helper()
	var vms []*vm
	for i, n := range nodes {
		network := Network{ID: id, Nodes: len(nodes), Underlay: n.underlay, Port: 299}
		var peers []netip.Addr
		for _, other := range nodes {
			if other != n {
				peers = append(peers, other.underlay.Addr)
			}
		}
		n.do(func() error {
			return errors.Join(Create(t.Context(), network), SetPeers(t.Context(), network, peers))
		})
		vms = append(vms, n.addVM(id, i, 0))
	}
	return vms
}

// A vm is the other end of a tap.
type vm struct {
	t *testing.T
	*netlab.Guest
	mtu int
}

var subnet = netip.MustParsePrefix("172.30.0.0/16")

func (n *node) addVM(id journal.ID, number, index int) *vm {
	n.t.Helper()
	addr, err := Address(subnet, number)
	if err != nil {
		n.t.Fatal(err)
	}
	return n.plug(id, Tap{Index: index, MAC: MAC(id.Job, number), Address: addr})
}

func (n *node) plug(id journal.ID, tap Tap) *vm {
	n.t.Helper()
	v := &vm{t: n.t}
	n.do(func() (err error) {
		v.mtu, err = AddTaps(n.t.Context(), id, tap)
		return err
	})
	guest, err := n.lab.Plug(TapName(id.Job, tap.Index), tap.MAC, tap.Address)
	if err != nil {
		n.t.Fatal(err)
	}
	n.t.Cleanup(func() { _ = guest.Close() })
	v.Guest = guest
	return v
}

func (v *vm) send(frame []byte) {
	v.t.Helper()
	if err := v.Send(frame); err != nil {
		v.t.Fatal(err)
	}
}

// arrives reports whether frame, which v sends, comes out at to. v then sends a second
// frame that certainly may pass: once that has arrived, the first has arrived or never
// will.
func (v *vm) arrives(frame []byte, to *vm) bool {
	v.t.Helper()
	v.reach(to)
	for range 50 {
		v.send(frame)
		marker := v.sendMarker(to)
		if got := to.received(marker); has(got, marker) {
			return has(got, frame)
		}
	}
	v.t.Fatalf("what %v sends to %v comes and goes", v.Addr, to.Addr)
	return false
}

// reach waits until frames get from v to to: a bridge's port works a moment after its
// link, and ARP on the underlay loses the first packets between two nodes.
func (v *vm) reach(to *vm) {
	v.t.Helper()
	for range 50 {
		if marker := v.sendMarker(to); has(to.received(marker), marker) {
			return
		}
	}
	v.t.Fatalf("nothing gets from %v to %v", v.Addr, to.Addr)
}

func (v *vm) sendMarker(to *vm) []byte {
	v.t.Helper()
	marker := ipFrame(v.MAC, netlab.Broadcast, v.Addr, to.Addr, fmt.Appendf(nil, "marker %d", time.Now().UnixNano()))
	v.send(marker)
	return marker
}

// has reports whether frame is among frames; a bridge cuts off the padding.
func has(frames [][]byte, frame []byte) bool {
	return slices.ContainsFunc(frames, func(f []byte) bool { return bytes.HasPrefix(frame, f) })
}

// received returns the frames up to and including marker, or until no more arrive.
func (v *vm) received(marker []byte) [][]byte {
	v.t.Helper()
	frames, err := v.Received(marker)
	if err != nil {
		v.t.Fatal(err)
	}
	return frames
}

func ipFrame(fromMAC, toMAC net.HardwareAddr, from, to netip.Addr, data []byte) []byte {
	return udpFrame(fromMAC, toMAC, from, to, 1, data)
}

func udpFrame(fromMAC, toMAC net.HardwareAddr, from, to netip.Addr, port uint16, data []byte) []byte {
	return netlab.Flow{
		FromMAC: fromMAC, ToMAC: toMAC, From: netip.AddrPortFrom(from, port), To: netip.AddrPortFrom(to, 9),
	}.UDP(data)
}
