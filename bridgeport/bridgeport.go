// Package bridgeport is what all taps of VMs on bridges have in common, those of a
// job's network as those that are VFs: how a tap is made, that the host's own IPv6
// keeps off the links beside it, and what a guest may send through it.
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

// NoGroup leaves a tap to its user alone.
const NoGroup = -1

// MakeTap makes a tap that stays when this process ends, and which the user, and
// the group if there is one, may open.
func MakeTap(name string, uid, gid int) (netlink.Link, error) {
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
	if err := unix.IoctlSetInt(fd, unix.TUNSETOWNER, uid); err != nil {
		return nil, fmt.Errorf("give it to user %d: %w", uid, err)
	}
	if gid != NoGroup {
		if err := unix.IoctlSetInt(fd, unix.TUNSETGROUP, gid); err != nil {
			return nil, fmt.Errorf("give it to group %d: %w", gid, err)
		}
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
