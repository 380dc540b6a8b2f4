package bridgeport

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/netlab"
)

// A site is a node with a bridge that connects it to its gateway.
type site struct {
	t       *testing.T
	node    *netlab.Node
	gateway net.HardwareAddr
	sink    *netlab.Sink
}

var (
	nodeAddr    = netip.MustParseAddr("10.1.0.1")
	gatewayAddr = netip.MustParseAddr("10.1.0.254")
	vmMAC       = net.HardwareAddr{2, 0, 4, 0x1e, 0x40, 7}
)

func newSite(t *testing.T) *site {
	t.Helper()
	node, gateway := newNode(t), newNode(t)
	s := &site{t: t, node: node}
	err := node.Bridge("br0")
	if err == nil {
		s.gateway, err = node.Connect("br0", gateway, netip.PrefixFrom(gatewayAddr, 24))
	}
	if err == nil {
		err = node.Address("br0", netip.PrefixFrom(nodeAddr, 24))
	}
	if err == nil {
		s.sink, err = gateway.Sink(netip.AddrPortFrom(gatewayAddr, 9))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.sink.Close() })
	return s
}

func newNode(t *testing.T) *netlab.Node {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("makes network namespaces: run as root")
	}
	node, err := netlab.NewNode()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = node.Close() })
	return node
}

func (s *site) do(f func() error) {
	s.t.Helper()
	if err := s.node.Do(f); err != nil {
		s.t.Fatal(err)
	}
}

// wire connects a VM to the bridge with a wire.
func (s *site) wire() {
	s.do(func() error {
		port, err := Wire{Tap: "tap0", End: "end0", Port: "port0", Alias: AliasPrefix + "test", MAC: vmMAC, MTU: 1400}.Lay()
		if err != nil {
			return err
		}
		return netlab.Enslave(port.Attrs().Name, "br0")
	})
}

// direct puts a VM's tap on the bridge.
func (s *site) direct() {
	s.do(func() error {
		_, err := MakeTap("tap0", 1)
		return errors.Join(err, netlab.Enslave("tap0", "br0"))
	})
}

// open opens the VM's tap, as libvirt does for QEMU.
func (s *site) open() (tap *os.File) {
	s.t.Helper()
	s.do(func() (err error) {
		tap, err = netlab.OpenTap("tap0")
		return err
	})
	s.t.Cleanup(func() { _ = tap.Close() })
	return tap
}

// reachesGateway reports whether a packet of the node reaches its gateway within that
// time: a port works only a moment after its link.
func (s *site) reachesGateway(within time.Duration) bool {
	s.t.Helper()
	before := s.sink.Bytes()
	s.do(func() error {
		conn, err := net.Dial("udp4", netip.AddrPortFrom(gatewayAddr, 9).String())
		if err != nil {
			return err
		}
		defer conn.Close()
		for end := time.Now().Add(within); time.Now().Before(end) && s.sink.Bytes() == before; {
			_, _ = conn.Write([]byte("hello"))
			time.Sleep(10 * time.Millisecond)
		}
		return nil
	})
	return s.sink.Bytes() > before
}

// holds reports whether the bridge takes mac for an address of its own.
func (s *site) holds(mac net.HardwareAddr) (found bool) {
	s.t.Helper()
	s.do(func() error {
		entries, err := netlink.NeighList(0, unix.AF_BRIDGE)
		for _, e := range entries {
			found = found || slices.Equal(e.HardwareAddr, mac) && e.State&netlink.NUD_PERMANENT != 0 && e.MasterIndex != 0
		}
		return err
	})
	return found
}

// Whoever traces QEMU has the descriptor of its tap, with which the kernel lets them set
// the MAC address without any capability.
func TestWhoHasTheTapCannotTakeTheGatewaysAddress(t *testing.T) {
	for name, tt := range map[string]struct {
		plug func(*site)
		cut  bool
	}{
		"on a wire it stays the gateway's":              {(*site).wire, false},
		"as a port of the bridge it becomes the node's": {(*site).direct, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newSite(t)
			tt.plug(s)
			if !s.reachesGateway(10 * time.Second) {
				t.Fatal("the node does not reach its gateway to begin with")
			}
			tap := s.open()
			if err := s.node.AsNobody(func() error { return netlab.SetMAC(tap, s.gateway) }); err != nil {
				t.Fatal(err)
			}
			if holds := s.holds(s.gateway); holds != tt.cut {
				t.Errorf("the bridge takes what is for the gateway: %v, want %v", holds, tt.cut)
			}
			if reaches := s.reachesGateway(time.Second); reaches == tt.cut {
				t.Errorf("the node reaches its gateway: %v, want %v", reaches, !tt.cut)
			}
		})
	}
}

func TestOnlyRootOpensATap(t *testing.T) {
	node := newNode(t)
	change := func(tap string, request, value int) error {
		file, err := netlab.OpenTap(tap) // this makes the tap if it does not exist
		if err != nil {
			return err
		}
		defer file.Close()
		return unix.IoctlSetInt(int(file.Fd()), uint(request), value)
	}
	err := node.Do(func() error {
		_, err1 := MakeTap("roots", 1)
		_, err2 := MakeTap("nobodys", 1)
		return errors.Join(err1, err2, change("nobodys", unix.TUNSETOWNER, netlab.Nobody), change("ownerless", unix.TUNSETPERSIST, 1))
	})
	if err != nil {
		t.Fatal(err)
	}
	for tap, want := range map[string]error{"roots": unix.EPERM, "nobodys": nil, "ownerless": nil} {
		file, err := node.OpenTapAsNobody(tap)
		if !errors.Is(err, want) {
			t.Errorf("an ordinary user opens the tap %s: error = %v, want %v", tap, err, want)
		}
		if file != nil {
			_ = file.Close()
		}
	}
	err = node.Do(func() error {
		file, err := netlab.OpenTap("roots")
		if err == nil {
			err = file.Close()
		}
		return err
	})
	if err != nil {
		t.Errorf("root opens it: error = %v", err)
	}
}

func TestAWireLeavesTheBridgesAddressAlone(t *testing.T) {
	s := newSite(t)
	address := func() (mac net.HardwareAddr) {
		s.do(func() error {
			bridge, err := netlink.LinkByName("br0")
			if err == nil {
				mac = bridge.Attrs().HardwareAddr
			}
			return err
		})
		return mac
	}
	s.do(func() error { // as high as the ports of a bridge that has only VMs of libvirt
		links, err := netlink.LinkList()
		for _, link := range links {
			if link.Attrs().MasterIndex != 0 {
				err = errors.Join(err, netlink.LinkSetHardwareAddr(link, net.HardwareAddr{0xfe, 0x54, 0, 0xff, 0xff, 0xff}))
			}
		}
		return err
	})
	before := address()
	if before[0] != 0xfe {
		t.Fatalf("the bridge's address is %v", before)
	}
	s.wire()
	if after := address(); !slices.Equal(before, after) {
		t.Errorf("the bridge's address was %v and is %v", before, after)
	}
	s.do(func() error {
		for _, name := range []string{"tap0", "end0", "port0"} {
			link, err := netlink.LinkByName(name)
			if err != nil {
				return err
			}
			if a := link.Attrs(); a.MTU != 1400 || !IsOurs(link) {
				t.Errorf("%s: MTU %d, alias %q", name, a.MTU, a.Alias)
			}
		}
		return nil
	})
}

// The host's own network sees no frame from a tap, however short the frame is.
func TestAWireTakesEveryFrame(t *testing.T) {
	s := newSite(t)
	s.wire()
	guest, err := s.node.Plug("tap0", vmMAC, netip.MustParseAddr("10.1.0.7"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = guest.Close() })
	frame := netlab.Frame(vmMAC, netlab.Broadcast, unix.ETH_P_IP)
	if err := errors.Join(guest.Send(frame[:15]), guest.Send(frame)); err != nil {
		t.Fatal(err)
	}
	s.do(func() error {
		tap, err := netlink.LinkByName("tap0")
		if err != nil {
			return err
		}
		filters, err := netlink.FilterList(tap, Ingress)
		var taken uint32
		for _, f := range filters {
			if u, ok := f.(*netlink.U32); ok && len(u.Actions) == 1 {
				taken = u.Actions[0].Attrs().Statistics.Basic.Packets
			}
		}
		if got := tap.Attrs().Statistics.RxPackets; taken != 2 || got != 2 {
			t.Errorf("of the 2 frames the tap got %d, and the wire took %d", got, taken)
		}
		return err
	})
}

// A guest leaves segmentation and checksums to the host, which may pass large packets on.
func TestAWireTakesWhatIsNotCutIntoFrames(t *testing.T) {
	s := newSite(t)
	s.wire()
	vm := newNode(t)
	s.boot(vm, netip.MustParsePrefix("10.1.0.7/24"))
	data := bytes.Repeat([]byte("a stream of some length "), 1<<17)
	least := uint64(len(data) / 1400) // number of frames if the data were segmented
	for name, way := range map[string]struct {
		from, to *netlab.Node
		addr     netip.Addr
	}{"to the node": {vm, s.node, nodeAddr}, "to the VM": {s.node, vm, netip.MustParseAddr("10.1.0.7")}} {
		got, err := stream(way.from, way.to, way.addr, data)
		if err != nil || !bytes.Equal(got, data) {
			t.Errorf("%s came %d of %d bytes, error %v", name, len(got), len(data), err)
		}
	}
	s.do(func() error {
		port, err := netlink.LinkByName("port0")
		if n := port.Attrs().Statistics; n.RxPackets+n.TxPackets > least {
			t.Errorf("%d and %d frames: they were cut on the way", n.RxPackets, n.TxPackets)
		}
		return err
	})
}

// boot connects the tap to another node's, as QEMU connects a guest's card: large packets
// are not segmented, and their checksums are not computed.
func (s *site) boot(vm *netlab.Node, addr netip.Prefix) {
	s.t.Helper()
	host := s.openWhole(s.node, "tap0")
	err := vm.Do(func() error {
		tap, err := MakeTap("eth0", 1)
		if err != nil {
			return err
		}
		return errors.Join(netlink.LinkSetHardwareAddr(tap, vmMAC), netlink.LinkSetMTU(tap, 1400))
	})
	guest := s.openWhole(vm, "eth0")
	if err = errors.Join(err, vm.Address("eth0", addr)); err != nil {
		s.t.Fatal(err)
	}
	for from, to := range map[*os.File]*os.File{host: guest, guest: host} {
		go func() {
			buffer := make([]byte, 1<<17)
			for {
				n, err := from.Read(buffer)
				if err != nil {
					return
				}
				_, _ = to.Write(buffer[:n])
			}
		}()
	}
}

// openWhole opens a tap with a header per frame that says what work is left to do.
func (s *site) openWhole(node *netlab.Node, name string) (file *os.File) {
	s.t.Helper()
	err := node.Do(func() error {
		fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
		if err != nil {
			return err
		}
		request, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
		if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
			return err
		}
		file = os.NewFile(uintptr(fd), name)
		const checksum, large4, large6 = 1, 2, 4 // TUN_F_…
		return unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, checksum|large4|large6)
	})
	if err != nil {
		s.t.Fatal(fmt.Errorf("open tap %s: %w", name, err))
	}
	s.t.Cleanup(func() { _ = file.Close() })
	return file
}

// stream sends data by TCP.
func stream(from, to *netlab.Node, addr netip.Addr, data []byte) (got []byte, err error) {
	var listener net.Listener
	err = to.Do(func() (err error) {
		listener, err = net.Listen("tcp4", netip.AddrPortFrom(addr, 10).String())
		return err
	})
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	sent := make(chan error, 1)
	go func() {
		sent <- from.Do(func() error {
			conn, err := net.DialTimeout("tcp4", listener.Addr().String(), 10*time.Second)
			if err != nil {
				return err
			}
			_, err = conn.Write(data)
			return errors.Join(err, conn.Close())
		})
	}()
	_ = listener.(*net.TCPListener).SetDeadline(time.Now().Add(10 * time.Second))
	conn, err := listener.Accept()
	if err != nil {
		return nil, errors.Join(err, <-sent)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(30 * time.Second))
	got, err = io.ReadAll(conn)
	return got, errors.Join(err, <-sent)
}
