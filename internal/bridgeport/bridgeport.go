// Package bridgeport has what taps of VMs on bridges share, whether they belong to a
// job's network or are VFs: making a tap, keeping it apart from a bridge that others use
// ([Wire]), keeping the host's own IPv6 off the links, and the rules of what a guest may
// send.
//
// The rules are nftables expressions, with functions whose names read from left to right.
// The packages that make the bridges choose the tables and chains. Everything happens in
// the network namespace of the calling thread.
package bridgeport

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// MaxMTU is the largest MTU of a tap.
const MaxMTU = 65521

// MTU returns the MTU of a tap for a bridge.
func MTU(bridge netlink.Link) int { return min(bridge.Attrs().MTU, MaxMTU) }

// MakeTap makes a tap that outlives this process and that only root may open. libvirt,
// which runs in this process, opens it once for each queue and passes the descriptors to
// QEMU. A tap of several queues cannot be opened as one of one queue, nor the other way
// round.
func MakeTap(name string, queues int) (netlink.Link, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq(name)
	if err != nil {
		return nil, err
	}
	// Without IFF_TUN_EXCL, this would open an existing tap of that name.
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR | unix.IFF_TUN_EXCL | multiQueue(queues))
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return nil, fmt.Errorf("make the device: %w", err)
	}
	// Every user may open a tap without an owner.
	if err := unix.IoctlSetInt(fd, unix.TUNSETOWNER, 0); err != nil {
		return nil, fmt.Errorf("give it to root: %w", err)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1); err != nil {
		return nil, fmt.Errorf("keep it: %w", err)
	}
	return netlink.LinkByName(name)
}

func multiQueue(queues int) uint16 {
	if queues > 1 {
		return unix.IFF_MULTI_QUEUE
	}
	return 0
}

// Mark gives link the alias by which its maker finds it later. It also keeps the kernel
// from giving the link an IPv6 address, at which guests could reach the host.
func Mark(link netlink.Link, alias string) error {
	name := link.Attrs().Name
	if err := netlink.LinkSetAlias(link, alias); err != nil {
		return fmt.Errorf("set alias of %s: %w", name, err)
	}
	const none = 1 // IN6_ADDR_GEN_MODE_NONE
	err := netlink.LinkSetIP6AddrGenMode(link, none)
	if err != nil && !errors.Is(err, unix.EAFNOSUPPORT) && !errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("switch off IPv6 addresses on %s: %w", name, err)
	}
	return nil
}
