package bridgeport

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// A Wire leads from a VM's tap to a bridge that others use, too:
//
//	QEMU - Tap <- tc -> End = veth = Port - bridge
//
// The tap itself is no port of that bridge. Its descriptor is QEMU's, QEMU runs as
// the job's owner, and who traces it has the descriptor as well. With that anybody may
// set the tap's MAC address (SIOCSIFHWADDR), make it vanish (TUNSETPERSIST) or give it
// away (TUNSETOWNER): the kernel asks for no capability. And the MAC address of a
// port is one of the bridge's own, whose frames go to the host: that of the gateway
// would cut the node off. The port of a wire is out of reach.
type Wire struct {
	Tap, End, Port string // the names of the links
	Alias          string // of all three, by which their maker finds them again
	MAC            net.HardwareAddr
	MTU            int
}

// Lay makes the wire and returns its port, which is down and on no bridge. The VM has
// its end when it opens the tap. If it fails, remove what there is of the links.
func (w Wire) Lay() (port netlink.Link, err error) {
	tap, err := MakeTap(w.Tap)
	if err != nil {
		return nil, err
	}
	end, port, err := w.makeVeth()
	if err != nil {
		return nil, err
	}
	for _, link := range []netlink.Link{tap, end, port} {
		if err := Mark(link, w.Alias); err != nil {
			return nil, err
		}
	}
	if err := netlink.LinkSetMTU(tap, w.MTU); err != nil {
		return nil, fmt.Errorf("set MTU %d: %w", w.MTU, err)
	}
	return port, join(tap, end)
}

// makeVeth makes both ends with their addresses: udev would give them others.
func (w Wire) makeVeth() (end, port netlink.Link, err error) {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU, attrs.HardwareAddr = w.End, w.MTU, HostMAC(w.MAC)
	err = netlink.LinkAdd(&netlink.Veth{LinkAttrs: attrs, PeerName: w.Port, PeerHardwareAddr: HostMAC(w.MAC)})
	if err != nil {
		return nil, nil, fmt.Errorf("make veth %s: %w", w.Port, Lacking(err, "veth"))
	}
	if end, err = netlink.LinkByName(w.End); err != nil {
		return nil, nil, err
	}
	port, err = netlink.LinkByName(w.Port)
	return end, port, err
}

// HostMAC is the address of the host's end of a VM's NIC: the VM's but for the first
// byte, which is a high one, since a bridge takes the lowest address of its ports for
// its own.
func HostMAC(vm net.HardwareAddr) net.HardwareAddr {
	return slices.Concat(net.HardwareAddr{0xfe}, vm[1:])
}

// join hands everything that comes in by one of two links out by the other, and then
// sets them up: the host itself sees no frame of theirs.
func join(tap, end netlink.Link) error {
	if err := errors.Join(redirect(tap, end), redirect(end, tap)); err != nil {
		return err
	}
	for _, link := range []netlink.Link{tap, end} {
		if err := netlink.LinkSetUp(link); err != nil {
			return fmt.Errorf("set %s up: %w", link.Attrs().Name, err)
		}
	}
	return nil
}

// Ingress is where tc looks at the frames that come in by a link.
var Ingress = netlink.MakeHandle(0xffff, 0)

// redirect uses the oldest of what tc has (u32 and mirred).
func redirect(from, to netlink.Link) error {
	index := from.Attrs().Index
	err := netlink.QdiscAdd(&netlink.Ingress{QdiscAttrs: netlink.QdiscAttrs{
		LinkIndex: index, Handle: Ingress, Parent: netlink.HANDLE_INGRESS,
	}})
	if err == nil {
		err = netlink.FilterAdd(&netlink.U32{
			FilterAttrs: netlink.FilterAttrs{LinkIndex: index, Parent: Ingress, Priority: 1, Protocol: unix.ETH_P_ALL},
			Sel:         &netlink.TcU32Sel{Flags: netlink.TC_U32_TERMINAL, Keys: []netlink.TcU32Key{anything}},
			Actions:     []netlink.Action{netlink.NewMirredAction(to.Attrs().Index)},
		})
	}
	if err != nil {
		return fmt.Errorf("lead frames from %s to %s: %w", from.Attrs().Name, to.Attrs().Name, Lacking(err, "ingress qdisc, u32 or mirred"))
	}
	return nil
}

// anything compares nothing, in the Ethernet header: u32 does not match a frame that
// ends before the bytes it looks at.
var anything = netlink.TcU32Key{Off: -14}

// Lacking explains the errors by which a kernel says that it does not know of
// something.
func Lacking(err error, what string) error {
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("this kernel seems to have no %s; is there a module for it that was not loaded?: %w", what, err)
	}
	return err
}

// AliasPrefix begins the aliases of all links that Slurm-V makes.
const AliasPrefix = "slurmv "

// IsOurs reports whether a link on a bridge is one that Slurm-V made.
func IsOurs(link netlink.Link) bool {
	return strings.HasPrefix(link.Attrs().Alias, AliasPrefix)
}
