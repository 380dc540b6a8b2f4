package machine

import (
	"context"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"github.com/vishvananda/netlink"

	"github.com/slurm-v/slurm-v/guest"
)

// dhcp gets a lease for the interface and keeps it.
func (n *nics4) dhcp(ctx context.Context, host string, link netlink.Link, _ guest.NIC) (*net.IPNet, error) {
	// The first message is often lost while the link comes up. The wait doubles with each
	// try, to a minute in all.
	client, err := nclient4.New(link.Attrs().Name, nclient4.WithTimeout(500*time.Millisecond), nclient4.WithRetry(7))
	if err != nil {
		return nil, fmt.Errorf("ask for an address by DHCP: %w", err)
	}
	name := dhcpv4.WithOption(dhcpv4.OptHostName(host))
	lease, err := client.Request(ctx, name)
	if err == nil {
		err = n.apply(link, lease.ACK)
	}
	if err != nil {
		_ = client.Close()
		return nil, fmt.Errorf("get an address by DHCP: %w", err)
	}
	go func() {
		defer func() { _ = client.Close() }()
		n.renew(client, link, lease, name)
	}()
	return subnetOf(lease.ACK), nil
}

// renew renews the lease until n.keep ends.
func (n *nics4) renew(client *nclient4.Client, link netlink.Link, lease *nclient4.Lease, name dhcpv4.Modifier) {
	pause := renewAfter(lease.ACK)
	for {
		select {
		case <-time.After(pause):
		case <-n.keep.Done():
			return
		}
		next, err := client.Renew(n.keep, lease, name)
		if err != nil && time.Since(lease.CreationTime) > lease.ACK.IPAddressLeaseTime(time.Hour) {
			next, err = client.Request(n.keep, name)
		}
		if err == nil {
			err = n.apply(link, next.ACK)
		}
		if err != nil {
			n.m.log().Warn("DHCP lease not renewed", "interface", link.Attrs().Name, "err", err)
			pause = min(pause, 30*time.Second)
			continue
		}
		lease, pause = next, renewAfter(next.ACK)
	}
}

// renewAfter is half of the lease's time, unless the server sets another time.
func renewAfter(ack *dhcpv4.DHCPv4) time.Duration {
	lease := ack.IPAddressLeaseTime(time.Hour)
	return max(ack.IPAddressRenewalTime(lease/2), time.Second)
}

// apply gives the interface the address and routes of the server's answer.
func (n *nics4) apply(link netlink.Link, ack *dhcpv4.DHCPv4) error {
	addr := &netlink.Addr{IPNet: subnetOf(ack)}
	if err := n.AddrReplace(link, addr); err != nil {
		return fmt.Errorf("set address %s: %w", addr, err)
	}
	for _, route := range routesOf(ack) {
		r := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: route.Dest, Gw: route.Router}
		if route.Router.IsUnspecified() { // on the link
			r.Gw, r.Scope = nil, netlink.SCOPE_LINK
		}
		if err := n.RouteReplace(r); err != nil {
			return fmt.Errorf("set route to %s: %w", route.Dest, err)
		}
	}
	if text := resolvConf(ack); text != "" {
		n.resolver(text)
	}
	return nil
}

// subnetOf returns the address in an answer, with its network's mask.
func subnetOf(ack *dhcpv4.DHCPv4) *net.IPNet {
	mask := ack.SubnetMask()
	if mask == nil {
		mask = ack.YourIPAddr.DefaultMask()
	}
	return &net.IPNet{IP: ack.YourIPAddr, Mask: mask}
}

// routesOf returns the routes of an answer. If the answer has classless routes, its router
// does not count (RFC 3442).
func routesOf(ack *dhcpv4.DHCPv4) []*dhcpv4.Route {
	if routes := ack.ClasslessStaticRoute(); len(routes) > 0 {
		return routes
	}
	if routers := ack.Router(); len(routers) > 0 {
		all := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
		return []*dhcpv4.Route{{Dest: all, Router: routers[0]}}
	}
	return nil
}

func resolvConf(ack *dhcpv4.DHCPv4) string {
	var b strings.Builder
	for _, server := range ack.DNS() {
		fmt.Fprintf(&b, "nameserver %s\n", server)
	}
	if domain := ack.DomainName(); b.Len() > 0 && validName(domain) {
		fmt.Fprintf(&b, "search %s\n", domain)
	}
	return b.String()
}

// resolver writes /etc/resolv.conf unless a service of the image owns it.
func (n *nics4) resolver(text string) {
	path := n.m.path("etc/resolv.conf")
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSymlink != 0 {
		n.m.log().Info("name servers of DHCP not used: /etc/resolv.conf is managed by the image")
		return
	}
	err := edit(path, func(string) string { return text })
	if err != nil {
		n.m.log().Warn("name servers not set", "err", err)
	}
}
