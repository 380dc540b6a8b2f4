// Package netlab makes nodes and guests for tests and measurements of networks. A node is
// a network namespace. A guest is the other end of a tap, in QEMU's place.
package netlab

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// A Node is a network namespace. It is gone when it is closed.
type Node struct {
	ns netns.NsHandle
}

// NewNode makes a node that has only a loopback device.
func NewNode() (*Node, error) {
	n := &Node{}
	err := onThread(func() (err error) {
		n.ns, err = netns.New()
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("make a network namespace: %w", err)
	}
	return n, n.Do(func() error { return SetUp("lo") })
}

// Close closes the namespace.
func (n *Node) Close() error { return n.ns.Close() }

// Do runs f on a thread that is in the node's network namespace.
func (n *Node) Do(f func() error) error {
	return onThread(func() error {
		if err := netns.Set(n.ns); err != nil {
			return err
		}
		return f()
	})
}

// onThread runs f on a new thread. The thread ends with f, and with it the namespace and
// everything else that f has changed for the thread.
func onThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

// Bridge makes a bridge on the node and sets it up.
func (n *Node) Bridge(name string) error {
	return n.Do(func() error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		return errors.Join(netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}), SetUp(name))
	})
}

// Connect lays a cable from a bridge of the node to eth0 of another node, and puts an
// address on eth0. It returns the hardware address of eth0.
func (n *Node) Connect(bridge string, to *Node, address netip.Prefix) (mac net.HardwareAddr, err error) {
	if err := n.layCable(bridge, to); err != nil {
		return nil, fmt.Errorf("connect %s: %w", bridge, err)
	}
	return mac, to.Do(func() error {
		link, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		mac = link.Attrs().HardwareAddr
		return setAddress(link, address)
	})
}

// Wire lays a cable between two nodes. On both it has the name eth0.
func (n *Node) Wire(to *Node) error {
	return n.Do(func() error { return addVeth("eth0", to) })
}

// Join lays a cable between two nodes' bridges.
func (n *Node) Join(bridge string, to *Node) error {
	if err := n.layCable(bridge, to); err != nil {
		return fmt.Errorf("connect %s: %w", bridge, err)
	}
	return to.Do(func() error { return Enslave("eth0", bridge) })
}

func (n *Node) layCable(bridge string, to *Node) error {
	return n.Do(func() error {
		return errors.Join(addVeth("uplink", to), Enslave("uplink", bridge))
	})
}

// addVeth lays a cable from the calling thread's namespace to eth0 of a node.
func addVeth(name string, to *Node) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	return netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: "eth0", PeerNamespace: netlink.NsFd(to.ns)})
}

// Enslave puts a link of the calling thread's namespace on a bridge and sets it up.
func Enslave(name, bridge string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	master, err := netlink.LinkByName(bridge)
	if err != nil {
		return err
	}
	return errors.Join(netlink.LinkSetMaster(link, master), netlink.LinkSetUp(link))
}

// Address puts an address on a link of the node.
func (n *Node) Address(name string, address netip.Prefix) error {
	return n.Do(func() error {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		return setAddress(link, address)
	})
}

func setAddress(link netlink.Link, address netip.Prefix) error {
	addr, err := netlink.ParseAddr(address.String())
	if err != nil {
		return err
	}
	return errors.Join(netlink.AddrAdd(link, addr), netlink.LinkSetUp(link))
}

// SetUp sets a link of the calling thread's namespace up.
func SetUp(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

// A Guest is the machine behind a tap.
type Guest struct {
	MAC  net.HardwareAddr
	Addr netip.Addr
	tap  *os.File
}

// Plug opens an existing tap of the node, as QEMU does.
func (n *Node) Plug(tap string, mac net.HardwareAddr, addr netip.Addr) (*Guest, error) {
	g := &Guest{MAC: mac, Addr: addr}
	err := n.Do(func() (err error) {
		g.tap, err = OpenTap(tap)
		return err
	})
	return g, err
}

// OpenTap opens a tap of the calling thread's namespace, with the thread's rights.
func OpenTap(name string) (*os.File, error) {
	fd, err := openTun()
	if err != nil {
		return nil, err
	}
	return attach(fd, name)
}

func openTun() (fd int, err error) {
	return unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
}

func attach(fd int, name string) (*os.File, error) {
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

// Close closes the guest's tap.
func (g *Guest) Close() error { return g.tap.Close() }

// Send sends one frame.
func (g *Guest) Send(frame []byte) error {
	_, err := g.tap.Write(frame)
	return err
}

// Receive reads the next frame into a buffer and returns its length. If none arrives until a
// time, the error is [os.ErrDeadlineExceeded]. The zero time waits until the guest is closed.
func (g *Guest) Receive(frame []byte, until time.Time) (int, error) {
	if err := g.tap.SetReadDeadline(until); err != nil {
		return 0, err
	}
	return g.tap.Read(frame)
}

// Received returns the frames up to and including marker, or until no more arrive.
func (g *Guest) Received(marker []byte) (frames [][]byte, err error) {
	const silence = 100 * time.Millisecond
	buffer := make([]byte, 1<<16)
	for {
		if err := g.tap.SetReadDeadline(time.Now().Add(silence)); err != nil {
			return frames, err
		}
		n, err := g.tap.Read(buffer)
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return frames, nil
		}
		if err != nil {
			return frames, err
		}
		frames = append(frames, slices.Clone(buffer[:n]))
		if slices.Equal(buffer[:n], marker) {
			return frames, nil
		}
	}
}
