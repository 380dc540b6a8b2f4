package vmnet

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/journal"
)

// A node is a network namespace that stands for a node of the cluster.
type node struct {
	t        *testing.T
	ns       netns.NsHandle
	underlay Underlay
}

func newNode(t *testing.T) *node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("makes network namespaces: run as root")
	}
	n := &node{t: t}
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with its namespace
		var err error
		n.ns, err = netns.New()
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("make a network namespace: %v", err)
	}
	t.Cleanup(func() { _ = n.ns.Close() })
	n.do(func() error { return setUp("lo") })
	return n
}

// try runs f in the node's network namespace.
func (n *node) try(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := netns.Set(n.ns); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

func (n *node) do(f func() error) {
	n.t.Helper()
	if err := n.try(f); err != nil {
		n.t.Fatal(err)
	}
}

func setUp(name string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(l)
}

// newPair makes two nodes with a cable between them.
func newPair(t *testing.T) (a, b *node) {
	t.Helper()
	a, b = newNode(t), newNode(t)
	a.do(func() error {
		return netlink.LinkAdd(&netlink.Veth{
			LinkAttrs: netlink.LinkAttrs{Name: "eth0", MTU: 1500}, PeerName: "eth0", PeerNamespace: netlink.NsFd(b.ns),
		})
	})
	for n, addr := range map[*node]string{a: "10.9.0.1/24", b: "10.9.0.2/24"} {
		n.do(func() error { return n.address("eth0", addr) })
	}
	return a, b
}

func (n *node) address(name, addr string) error {
	l, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr(addr)
	if err != nil {
		return err
	}
	if err := errors.Join(netlink.AddrAdd(l, a), netlink.LinkSetUp(l)); err != nil {
		return err
	}
	n.underlay, err = AutoUnderlay("10.9.0.0/24")
	return err
}

// connect makes the network of a job on nodes, each of which then has a VM.
func connect(t *testing.T, id journal.ID, nodes ...*node) []*vm {
	t.Helper()
	var vms []*vm
	for i, n := range nodes {
		network := Network{ID: id, Nodes: len(nodes), Underlay: n.underlay, Port: 4789}
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
	t    *testing.T
	mac  net.HardwareAddr
	addr netip.Addr
	tap  *os.File
	mtu  int
}

var subnet = netip.MustParsePrefix("172.30.0.0/16")

func (n *node) addVM(id journal.ID, number, index int) *vm {
	n.t.Helper()
	addr, err := Address(subnet, number)
	if err != nil {
		n.t.Fatal(err)
	}
	return n.plug(id, Tap{Index: index, UID: 1000, MAC: MAC(id.Job, number), Address: addr})
}

func (n *node) plug(id journal.ID, tap Tap) *vm {
	n.t.Helper()
	v := &vm{t: n.t, mac: tap.MAC, addr: tap.Address}
	n.do(func() error {
		name, mtu, err := AddTap(n.t.Context(), id, tap)
		if err != nil {
			return err
		}
		v.mtu = mtu
		v.tap, err = openTap(name)
		return err
	})
	n.t.Cleanup(func() { _ = v.tap.Close() })
	return v
}

// openTap does what QEMU does with a tap that exists.
func openTap(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	request, err := unix.NewIfreq(name)
	if err != nil {
		return nil, err
	}
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return nil, fmt.Errorf("open tap %s: %w", name, errors.Join(err, unix.Close(fd)))
	}
	return os.NewFile(uintptr(fd), name), nil
}

func (v *vm) send(frame []byte) {
	v.t.Helper()
	if _, err := v.tap.Write(frame); err != nil {
		v.t.Fatal(err)
	}
}

// arrives reports whether frame, which v sends, comes out at to. After it goes a
// frame that certainly may pass; when that one is there the other is, or never
// will be.
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
	v.t.Fatalf("what %v sends to %v comes and goes", v.addr, to.addr)
	return false
}

// reach waits until frames get from v to to: ports come up a moment after their
// links, and ARP on the underlay loses the first packets between two nodes.
func (v *vm) reach(to *vm) {
	v.t.Helper()
	for range 50 {
		if marker := v.sendMarker(to); has(to.received(marker), marker) {
			return
		}
	}
	v.t.Fatalf("nothing gets from %v to %v", v.addr, to.addr)
}

func (v *vm) sendMarker(to *vm) []byte {
	v.t.Helper()
	marker := ipFrame(v.mac, broadcast, v.addr, to.addr, fmt.Appendf(nil, "marker %d", time.Now().UnixNano()))
	v.send(marker)
	return marker
}

// has reports whether frame is among frames; a bridge cuts off what pads it.
func has(frames [][]byte, frame []byte) bool {
	return slices.ContainsFunc(frames, func(f []byte) bool { return bytes.HasPrefix(frame, f) })
}

// received returns what v got up to and with marker, or until nothing comes.
func (v *vm) received(marker []byte) (frames [][]byte) {
	v.t.Helper()
	buffer := make([]byte, 1<<16)
	for {
		_ = v.tap.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
		n, err := v.tap.Read(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return frames
		}
		if err != nil {
			v.t.Fatal(err)
		}
		frames = append(frames, slices.Clone(buffer[:n]))
		if slices.Equal(buffer[:n], marker) {
			return frames
		}
	}
}

var broadcast = net.HardwareAddr{255, 255, 255, 255, 255, 255}

func frameOf(from, to net.HardwareAddr, kind uint16, payload ...[]byte) []byte {
	frame := slices.Concat(to, from, uint16Bytes(kind), slices.Concat(payload...))
	return append(frame, make([]byte, max(0, 60-len(frame)))...)
}

func ipFrame(fromMAC, toMAC net.HardwareAddr, from, to netip.Addr, data []byte) []byte {
	return udpFrame(fromMAC, toMAC, from, to, 1, data)
}

func udpFrame(fromMAC, toMAC net.HardwareAddr, from, to netip.Addr, port uint16, data []byte) []byte {
	udp := slices.Concat(uint16Bytes(port), uint16Bytes(9), uint16Bytes(uint16(8+len(data))), []byte{0, 0}, data)
	ip := slices.Concat([]byte{0x45, 0}, uint16Bytes(uint16(20+len(udp))), []byte{0, 0, 0, 0, 64, unix.IPPROTO_UDP, 0, 0},
		from.AsSlice(), to.AsSlice())
	return frameOf(fromMAC, toMAC, unix.ETH_P_IP, withChecksum(ip), udp)
}

// withChecksum fills in the checksum of an IPv4 header: the bridge hooks drop
// packets with a wrong one before any rule.
func withChecksum(header []byte) []byte {
	var sum uint32
	for i := 0; i < len(header); i += 2 {
		sum += uint32(header[i])<<8 | uint32(header[i+1])
	}
	sum = sum&0xffff + sum>>16
	sum = sum&0xffff + sum>>16
	copy(header[10:], uint16Bytes(^uint16(sum)))
	return header
}

func arpFrame(fromMAC, senderMAC net.HardwareAddr, sender, target netip.Addr) []byte {
	return frameOf(fromMAC, broadcast, unix.ETH_P_ARP, []byte{0, 1, 8, 0, 6, 4, 0, 1},
		senderMAC, sender.AsSlice(), make([]byte, 6), target.AsSlice())
}

func ip6Frame(fromMAC net.HardwareAddr, next byte, payload ...byte) []byte {
	from, to := netip.MustParseAddr("fe80::1"), netip.MustParseAddr("ff02::1")
	return frameOf(fromMAC, net.HardwareAddr{0x33, 0x33, 0, 0, 0, 1}, unix.ETH_P_IPV6,
		[]byte{0x60, 0, 0, 0}, uint16Bytes(uint16(len(payload))), []byte{next, 255}, from.AsSlice(), to.AsSlice(), payload)
}
