package software

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/bridgeport"
	"github.com/slurm-v/slurm-v/internal/netdump"
	"github.com/slurm-v/slurm-v/vfpool/device"
)

// A bridgeError says why a declared bridge cannot be used, and what to do.
type bridgeError struct{ text string }

func (e *bridgeError) Error() string { return e.text }

func (p pf) findBridge() (*netlink.Bridge, error) {
	link, err := find(p.Bridge)
	if err != nil {
		return nil, err
	}
	if link == nil {
		return nil, &bridgeError{fmt.Sprintf("there is no bridge %s on this node; make it, or declare another in [vf.software.%s]", p.Bridge, p.name)}
	}
	bridge, ok := link.(*netlink.Bridge)
	if !ok {
		return nil, &bridgeError{fmt.Sprintf("%s is a %s, not a bridge; declare another in [vf.software.%s]", p.Bridge, link.Type(), p.name)}
	}
	return bridge, nil
}

func filtersVLANs(bridge *netlink.Bridge) bool {
	return bridge.VlanFiltering != nil && *bridge.VlanFiltering
}

// A seat is the place for a VF's port: a bridge, and the port's VLAN on it.
type seat struct {
	bridge  netlink.Link
	pvid    uint16
	private bool // the bridge was made by this package, for one VLAN
}

// seat finds the seat of the VF, and makes its bridge if need be.
func (p port) seat() (seat, error) {
	declared, err := p.pf.findBridge()
	switch {
	case err != nil:
		return seat{}, err
	case p.want.VLAN == 0:
		return seat{bridge: declared}, nil
	case filtersVLANs(declared):
		return seat{bridge: declared, pvid: p.want.VLAN}, nil
	}
	bridge, err := tagBridge(declared, p.want.VLAN)
	return seat{bridge: bridge, private: true}, err
}

// tagBridge finds or makes the bridge of a VLAN. There is one per declared bridge, not
// per PF: two PFs may share a bridge, and its uplink can have only one device per tag.
func tagBridge(declared *netlink.Bridge, tag uint16) (netlink.Link, error) {
	name := tagBridgeName(declared.Name, tag)
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.MTU = name, declared.MTU
	snooping := false // snooping needs a multicast querier, which may not exist
	bridge, err := makeLink(&netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping}, mark+"VLAN of "+declared.Name)
	if err != nil {
		return nil, err
	}
	up, err := uplinkOf(declared)
	if err != nil {
		return nil, err
	}
	if up.link != nil {
		if err := connect(bridge, up.link, tag); err != nil {
			return nil, err
		}
	}
	return bridge, setUp(bridge)
}

// connect connects the bridge of a tag to the uplink. An 802.1Q device takes the frames
// with the tag before the declared bridge sees them. If the kernel has no 802.1Q, the
// bridge stays without an uplink.
func connect(bridge, uplink netlink.Link, tag uint16) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.ParentIndex = uplinkName(bridge.Attrs().Name), uplink.Attrs().Index
	link, err := makeLink(&netlink.Vlan{LinkAttrs: attrs, VlanId: int(tag), VlanProtocol: netlink.VLAN_PROTOCOL_8021Q},
		mark+"uplink of "+bridge.Attrs().Name)
	switch {
	case errors.Is(err, unix.EOPNOTSUPP):
		return nil
	case errors.Is(err, unix.EEXIST):
		return fmt.Errorf("VLAN %d of %s is taken by another device; set pool in [fabric.vlan] to tags which the node does not use: %w",
			tag, uplink.Attrs().Name, err)
	case err != nil:
		return err
	}
	if err := errors.Join(keepOffHost(link.Attrs().Name), enslave(link, bridge)); err != nil {
		return err
	}
	return setUp(link)
}

// An uplink is the link that connects a bridge to other nodes. If none is known, the text
// says why.
type uplink struct {
	link netlink.Link
	none string
}

func uplinkOf(bridge *netlink.Bridge) (uplink, error) {
	links, err := netdump.Links()
	if err != nil {
		return uplink{}, fmt.Errorf("list the ports of %s: %w", bridge.Name, err)
	}
	ports := slices.DeleteFunc(links, func(l netlink.Link) bool { return l.Attrs().MasterIndex != bridge.Index })
	return chooseUplink(bridge.Name, ports), nil
}

// chooseUplink returns the bridge's only port that leads outside: not a VM's, and not a
// container's (a veth) unless there are only such ports. With two uplinks, the bridges of
// the tags would form a loop.
func chooseUplink(bridge string, ports []netlink.Link) uplink {
	ports = slices.DeleteFunc(without(ports, "tuntap"), bridgeport.IsOurs)
	if outside := without(ports, "veth"); len(outside) > 0 {
		ports = outside
	}
	switch len(ports) {
	case 0:
		return uplink{none: fmt.Sprintf("bridge %s has no port that leads to other nodes", bridge)}
	case 1:
		return uplink{link: ports[0]}
	}
	var names []string
	for _, l := range ports {
		names = append(names, l.Attrs().Name)
	}
	slices.Sort(names)
	return uplink{none: fmt.Sprintf("which port of bridge %s leads to other nodes is not clear (%s; a bond would be one)", bridge, strings.Join(names, ", "))}
}

func without(links []netlink.Link, kind string) (others []netlink.Link) {
	for _, l := range links {
		if l.Type() != kind {
			others = append(others, l)
		}
	}
	return others
}

// vlanNotes notes if VLANs do not reach beyond this node.
func (p pf) vlanNotes() ([]device.Reason, error) {
	bridge, err := p.findBridge()
	if err != nil || filtersVLANs(bridge) {
		return nil, err
	}
	up, err := uplinkOf(bridge)
	if err != nil {
		return nil, err
	}
	const end = "; VMs in a VLAN reach those on this node only"
	if up.link == nil {
		return []device.Reason{{Seen: up.none + end}}, nil
	}
	if !has8021Q(up.link) {
		return []device.Reason{{Seen: "the kernel has no 802.1Q (module 8021q)" + end}}, nil
	}
	return nil, nil
}

// has8021Q asks for VLAN 4095, which cannot exist. A kernel with 802.1Q rejects the
// number; one without it answers EOPNOTSUPP.
func has8021Q(parent netlink.Link) bool {
	attrs := netlink.NewLinkAttrs()
	attrs.Name, attrs.ParentIndex = uplinkPrefix+"-probe", parent.Attrs().Index
	err := netlink.LinkAdd(&netlink.Vlan{LinkAttrs: attrs, VlanId: 4095})
	return !errors.Is(err, unix.EOPNOTSUPP)
}

// sweepBridges removes the bridges of tags that have no VF. It also removes those of
// other processes, which may have crashed before they made the first VF.
func sweepBridges() error {
	links, err := netdump.Links()
	if err != nil {
		return fmt.Errorf("list links: %w", err)
	}
	used := map[int]bool{}
	for _, l := range links {
		if _, _, plug := split(plugPrefix, l.Attrs().Name); plug {
			used[l.Attrs().MasterIndex] = true
		}
	}
	for _, l := range links {
		a := l.Attrs()
		_, _, named := split(bridgePrefix, a.Name)
		if !named || l.Type() != "bridge" || !ours(a.Alias) || used[a.Index] {
			continue
		}
		up := uplinkName(a.Name)
		if err := errors.Join(remove(up, "vlan"), removeFilterOf(up), remove(a.Name, "bridge")); err != nil {
			return err
		}
	}
	return nil
}
