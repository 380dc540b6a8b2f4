// Package bridgeport is what all taps of VMs on bridges have in common, those of a
// job's network as those that are VFs: how a tap is made, how it is kept apart from a
// bridge that others use ([Wire]), that the host's own IPv6 keeps off the links beside
// it, and what a guest may send through it.
//
// The rules are nftables', in words that read from left to right; which table and
// which chains they are in is for the packages that make the bridges. Everything
// happens in the network namespace of the calling thread.
package bridgeport

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// MaxMTU is the most that a tap takes.
const MaxMTU = 65521

// MTU returns that of a tap for a bridge.
func MTU(bridge netlink.Link) int { return min(bridge.Attrs().MTU, MaxMTU) }

// MakeTap makes a tap that stays when this process ends, and which only root may
// open. That is libvirt, in our process, which hands QEMU the descriptor.
func MakeTap(name string) (netlink.Link, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	defer unix.Close(fd)
	request, err := unix.NewIfreq(name)
	if err != nil {
		return nil, err
	}
	// Exclusive, else it would open a tap of that name which exists.
	request.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR | unix.IFF_TUN_EXCL)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, request); err != nil {
		return nil, fmt.Errorf("make the device: %w", err)
	}
	// One without an owner may be opened by everybody.
	if err := unix.IoctlSetInt(fd, unix.TUNSETOWNER, 0); err != nil {
		return nil, fmt.Errorf("give it to root: %w", err)
	}
	if err := unix.IoctlSetInt(fd, unix.TUNSETPERSIST, 1); err != nil {
		return nil, fmt.Errorf("keep it: %w", err)
	}
	return netlink.LinkByName(name)
}

// Mark gives link the alias by which its maker finds it again, and keeps the host's
// IPv6 off it: an address that the kernel gives itself would let guests reach the
// host.
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
