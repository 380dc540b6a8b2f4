package vmnet

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/netdump"
)

// An Underlay is the network address at which the job's other nodes reach this node.
type Underlay struct {
	Addr      netip.Addr   // of this node
	Prefix    netip.Prefix // that contains all nodes' addresses
	Interface string
	MTU       int
}

// AutoUnderlay finds this node's address for traffic between nodes. With a prefix it is
// the address in that prefix. Without one it is the address of the interface with the
// default route. On a node without such a route it is the only address, apart from
// loopback and link-local ones.
func AutoUnderlay(prefix string) (Underlay, error) {
	var want netip.Prefix
	if prefix != "" {
		var err error
		if want, err = netip.ParsePrefix(prefix); err != nil {
			return Underlay{}, fmt.Errorf("underlay %q is not a prefix such as 10.1.0.0/16", prefix)
		}
	}
	found, routed, err := localUnderlays()
	if err != nil {
		return Underlay{}, fmt.Errorf("find the underlay address: %w", err)
	}
	return choose(found, routed, want)
}

// choose picks one of a node's addresses. Without a prefix it considers only those on the
// interface routed, which has the default route; "" means that there is none.
func choose(found []Underlay, routed string, want netip.Prefix) (Underlay, error) {
	if want.IsValid() {
		for _, u := range found {
			if want.Contains(u.Addr) {
				u.Prefix = want.Masked()
				return u, nil
			}
		}
		return Underlay{}, fmt.Errorf("no address of this node is in the underlay %v; it has %s", want, list(found))
	}
	onRoute := slices.IndexFunc(found, func(u Underlay) bool { return u.Interface == routed })
	switch {
	case onRoute >= 0:
		return found[onRoute], nil
	case len(found) == 1:
		return found[0], nil
	}
	return Underlay{}, fmt.Errorf("which address connects this node to the others is not clear: no default route, addresses %s; set underlay in the configuration", list(found))
}

func list(found []Underlay) string {
	if len(found) == 0 {
		return "none"
	}
	var texts []string
	for _, u := range found {
		texts = append(texts, fmt.Sprintf("%v (%s)", u.Addr, u.Interface))
	}
	return strings.Join(texts, ", ")
}

// localUnderlays returns the node's global IPv4 addresses and the interface of
// its default route.
func localUnderlays() (found []Underlay, routed string, err error) {
	links, err := netdump.Links()
	if err != nil {
		return nil, "", err
	}
	for _, l := range links {
		addrs, err := netdump.Addrs(l, netlink.FAMILY_V4)
		if err != nil && !errors.Is(err, unix.ENODEV) {
			return nil, "", err
		}
		for _, a := range addrs {
			if u, ok := underlayOf(l.Attrs(), a); ok {
				found = append(found, u)
			}
		}
	}
	index, err := defaultRoute()
	for _, l := range links {
		if l.Attrs().Index == index {
			routed = l.Attrs().Name
		}
	}
	return found, routed, err
}

func underlayOf(link *netlink.LinkAttrs, a netlink.Addr) (Underlay, bool) {
	addr, ok := netip.AddrFromSlice(a.IP.To4())
	if !ok || !addr.IsGlobalUnicast() || a.Scope != unix.RT_SCOPE_UNIVERSE {
		return Underlay{}, false
	}
	bits, _ := a.Mask.Size()
	u := Underlay{Addr: addr, Prefix: netip.PrefixFrom(addr, bits).Masked(), Interface: link.Name, MTU: link.MTU}
	if link.Flags&net.FlagLoopback != 0 {
		u.MTU = ethernetMTU // a routed address, whose packets leave through another interface
	}
	return u, true
}

// defaultRoute returns the index of the interface of the best default route, or 0.
func defaultRoute() (int, error) {
	routes, err := netdump.Whole(func() ([]netlink.Route, error) { return netlink.RouteList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return 0, err
	}
	routes = slices.DeleteFunc(routes, func(r netlink.Route) bool {
		return r.Dst != nil && !r.Dst.IP.IsUnspecified() || r.LinkIndex == 0
	})
	if len(routes) == 0 {
		return 0, nil
	}
	return slices.MinFunc(routes, func(a, b netlink.Route) int { return cmp.Compare(a.Priority, b.Priority) }).LinkIndex, nil
}
