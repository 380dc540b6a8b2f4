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

// A Wire connects a VM's tap to a bridge with other users:
//
//	QEMU - Tap <- tc -> End = veth = Port - bridge
//
// The tap itself is not a port of the bridge, for this reason. QEMU has the tap's
// descriptor and runs as the job's owner, who can trace QEMU and so gets the descriptor.
// Whoever has it can set the tap's MAC address (SIOCSIFHWADDR), delete the tap
// (TUNSETPERSIST) or give it away (TUNSETOWNER): the kernel asks for no capability. A
// bridge takes frames for the MAC address of one of its ports as frames for the host.
// With the gateway's address, the owner would cut the node off. They cannot reach the
// port of a wire.
type Wire struct {
	Tap, End, Port string // the names of the links
	Alias          string // of all three links, by which their maker finds them later
	MAC            net.HardwareAddr
	MTU            int
	Queues         int // of the tap
}

// Lay makes the wire and returns its port, which is down and on no bridge. The VM is
// connected when it opens the tap. If Lay fails, remove those of the links that exist.
func (w Wire) Lay() (port netlink.Link, err error) {
	tap, err := MakeTap(w.Tap, w.Queues)
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

// makeVeth gives both ends their addresses at once: otherwise udev gives them others.
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

// HostMAC is the address of the host's end of a VM's NIC: the VM's with the highest first
// two bytes. A bridge takes the lowest address of its ports as its own, which should not
// be this one; libvirt's taps begin with fe:54.
func HostMAC(vm net.HardwareAddr) net.HardwareAddr {
	return slices.Concat(net.HardwareAddr{0xfe, 0xff}, vm[2:])
}

// join redirects the frames from each of two links to the other, and then sets both up.
// The host's own network sees none of these frames.
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

// Ingress is where tc sees the frames that come from a link.
var Ingress = netlink.MakeHandle(0xffff, 0)

// redirect uses u32 and mirred, which are the oldest parts of tc and so the most common.
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

// anything matches every frame. It is at the Ethernet header, because u32 does not match
// a frame that ends before the bytes to compare.
var anything = netlink.TcU32Key{Off: -14}

// Lacking explains the errors that mean that the kernel lacks a feature.
func Lacking(err error, what string) error {
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("this kernel seems to have no %s; is there a module for it that was not loaded?: %w", what, err)
	}
	return err
}

// AliasPrefix is the prefix of the aliases of all links that Slurm-V makes.
const AliasPrefix = "slurmv "

// IsOurs reports whether Slurm-V made the link.
func IsOurs(link netlink.Link) bool {
	return strings.HasPrefix(link.Attrs().Alias, AliasPrefix)
}
