package machine

import (
	"context"
	"errors"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/server4"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/guest"
)

const testMAC = "02:00:00:00:00:07"

// inNetwork moves the test into a network namespace with a pair of interfaces:
// "far", and "near", which has testMAC and is down.
func inNetwork(t *testing.T, d *double) *nics4 {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("makes a network namespace: run as root")
	}
	runtime.LockOSThread() // for good: the thread ends with the test
	ns, err := netns.New()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ns.Close() })
	mac, _ := net.ParseMAC(testMAC)
	pair := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "near", HardwareAddr: mac}, PeerName: "far"}
	if err := netlink.LinkAdd(pair); err != nil {
		t.Fatal(err)
	}
	far, err := netlink.LinkByName("far")
	if err != nil {
		t.Fatal(err)
	}
	if err := netlink.LinkSetUp(far); err != nil {
		t.Fatal(err)
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		t.Fatal(err)
	}
	keep, stop := context.WithCancel(context.Background())
	t.Cleanup(stop)
	return &nics4{Handle: handle, keep: keep, m: d.Machine}
}

// addresses are the IPv4 addresses of near.
func addresses(t *testing.T, n *nics4) string {
	t.Helper()
	link, err := n.LinkByName("near")
	if err != nil {
		t.Fatal(err)
	}
	list, err := n.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		t.Fatal(err)
	}
	var text []string
	for _, a := range list {
		text = append(text, a.IPNet.String())
	}
	return strings.Join(text, " ")
}

func TestStaticAddress(t *testing.T) {
	const noIPv6 = "proc/sys/net/ipv6/conf/near/disable_ipv6"
	d := newDouble(t, map[string]string{noIPv6: "0"})
	n := inNetwork(t, d)
	nic := guest.NIC{MAC: strings.ToUpper(testMAC), Address: "172.30.0.8/16", MTU: 1400, IPv4Only: true}
	for range 2 { // it may be repeated
		if err := n.configure(t.Context(), "vm7", nic); err != nil {
			t.Fatal(err)
		}
	}
	link, err := n.LinkByName("near")
	if err != nil {
		t.Fatal(err)
	}
	if a := link.Attrs(); a.MTU != 1400 || a.Flags&net.FlagUp == 0 {
		t.Errorf("MTU %d, flags %v", a.MTU, a.Flags)
	}
	if got := addresses(t, n); got != "172.30.0.8/16" {
		t.Errorf("addresses = %s", got)
	}
	if got := d.text(t, noIPv6); got != "1" {
		t.Errorf("disable_ipv6 = %s", got)
	}
	want := guest.Address{Interface: "near", MAC: nic.MAC, CIDR: "172.30.0.8/16"}
	if got := n.m.report().Addresses; len(got) == 0 || got[0] != want {
		t.Errorf("reported addresses are %v, want %v", got, want)
	}

	// The image's network service takes it away.
	addr, _ := netlink.ParseAddr("172.30.0.8/16")
	changes := make(chan netlink.AddrUpdate)
	if err := netlink.AddrSubscribe(changes, n.keep.Done()); err != nil {
		t.Fatal(err)
	}
	if err := n.AddrDel(link, addr); err != nil {
		t.Fatal(err)
	}
	for c := range changes {
		if c.NewAddr && c.LinkAddress.IP.Equal(addr.IP) {
			break
		}
	}
}

func TestAddressThatIsNone(t *testing.T) {
	n := inNetwork(t, newDouble(t, map[string]string{}))
	tests := map[string]struct {
		nic  guest.NIC
		want string
	}{
		"no prefix length": {guest.NIC{MAC: testMAC, Address: "172.30.0.8"}, "neither an address with a prefix length nor dhcp"},
		"an absurd MTU":    {guest.NIC{MAC: testMAC, Address: "dhcp", MTU: 1 << 30}, "set the MTU"},
	}
	for name, tt := range tests {
		if err := n.configure(t.Context(), "vm7", tt.nic); err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: error = %v, want one that says %q", name, err, tt.want)
		}
	}
	gone := errors.New("enough")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(gone)
	if err := n.configure(ctx, "vm7", guest.NIC{MAC: "02:ff:ff:ff:ff:ff"}); !errors.Is(err, gone) {
		t.Errorf("an interface that is not there: %v", err)
	}
}

// A program that starts when the VM is ready finds an interface that runs.
func TestConfigureAwaitsTheCarrier(t *testing.T) {
	n := inNetwork(t, newDouble(t, map[string]string{}))
	far, err := n.LinkByName("far")
	if err != nil {
		t.Fatal(err)
	}
	if err := n.LinkSetDown(far); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(100*time.Millisecond, func() { _ = n.LinkSetUp(far) })
	if err := n.configure(t.Context(), "vm7", guest.NIC{MAC: testMAC, Address: "10.9.0.2/24"}); err != nil {
		t.Fatal(err)
	}
	near, err := n.LinkByName("near")
	if err != nil {
		t.Fatal(err)
	}
	if near.Attrs().RawFlags&unix.IFF_RUNNING == 0 {
		t.Error("the interface does not run yet")
	}
}

func TestDHCP(t *testing.T) {
	d := newDouble(t, map[string]string{})
	n := inNetwork(t, d)
	asked := serveDHCP(t, dhcpv4.WithLeaseTime(2),
		dhcpv4.WithRouter(net.IPv4(10, 9, 0, 1)), dhcpv4.WithDNS(net.IPv4(10, 9, 0, 3)))
	if err := n.configure(t.Context(), "vm7", guest.NIC{MAC: testMAC, Address: "dhcp"}); err != nil {
		t.Fatal(err)
	}
	if got := addresses(t, n); got != "10.9.0.2/24" {
		t.Errorf("addresses = %s", got)
	}
	if got := defaultRoute(t, n); got != "10.9.0.1" {
		t.Errorf("default route by %s", got)
	}
	if got := d.text(t, "etc/resolv.conf"); got != "nameserver 10.9.0.3\n" {
		t.Errorf("/etc/resolv.conf = %q", got)
	}
	if first := <-asked; first.HostName() != "vm7" || first.MessageType() != dhcpv4.MessageTypeDiscover {
		t.Errorf("first message: %s", first.Summary())
	}
	if err := os.Remove(d.path("etc/resolv.conf")); err != nil {
		t.Fatal(err)
	}
	for m := range asked { // until it is renewed
		if m.MessageType() == dhcpv4.MessageTypeRequest && m.ClientIPAddr.Equal(net.IPv4(10, 9, 0, 2)) {
			break
		}
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(d.path("etc/resolv.conf")); err == nil {
			break // the answer is applied
		}
		if time.Now().After(end) {
			t.Fatal("the answer to the renewal is not applied")
		}
	}
}

func TestClasslessRoutes(t *testing.T) {
	_, dest, _ := net.ParseCIDR("10.20.0.0/16")
	ack, err := dhcpv4.New(dhcpv4.WithRouter(net.IPv4(10, 9, 0, 1)),
		dhcpv4.WithOption(dhcpv4.OptClasslessStaticRoute(&dhcpv4.Route{Dest: dest, Router: net.IPv4(10, 9, 0, 5)})))
	if err != nil {
		t.Fatal(err)
	}
	routes := routesOf(ack)
	if len(routes) != 1 || routes[0].Dest.String() != "10.20.0.0/16" {
		t.Errorf("routes = %v", routes)
	}
}

func TestRenewAfter(t *testing.T) {
	tests := map[string]struct {
		options []dhcpv4.Modifier
		want    time.Duration
	}{
		"half of the lease":      {[]dhcpv4.Modifier{dhcpv4.WithLeaseTime(600)}, 300 * time.Second},
		"what the server says":   {[]dhcpv4.Modifier{dhcpv4.WithLeaseTime(600), dhcpv4.WithOption(dhcpv4.OptRenewTimeValue(time.Minute))}, time.Minute},
		"never all the time":     {[]dhcpv4.Modifier{dhcpv4.WithLeaseTime(1)}, time.Second},
		"half an hour otherwise": {nil, 30 * time.Minute},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			ack, err := dhcpv4.New(tt.options...)
			if err != nil {
				t.Fatal(err)
			}
			if got := renewAfter(ack); got != tt.want {
				t.Errorf("renew after %v, want %v", got, tt.want)
			}
		})
	}
}

// A link that a service of the image made is not written through.
func TestResolverOfTheImage(t *testing.T) {
	d := newDouble(t, map[string]string{"run/stub.conf": "nameserver 127.0.0.53\n"})
	if err := os.Symlink("../run/stub.conf", d.path("etc/resolv.conf")); err != nil {
		t.Fatal(err)
	}
	(&nics4{m: d.Machine}).resolver("nameserver 10.9.0.3\n")
	if got := d.text(t, "run/stub.conf"); got != "nameserver 127.0.0.53\n" {
		t.Errorf("resolv.conf = %q", got)
	}
}

func defaultRoute(t *testing.T, n *nics4) string {
	t.Helper()
	routes, err := n.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range routes {
		if ones, _ := r.Dst.Mask.Size(); ones == 0 {
			return r.Gw.String()
		}
	}
	return "nothing"
}

// serveDHCP gives 10.9.0.2 to whoever asks on far. It returns the messages.
func serveDHCP(t *testing.T, options ...dhcpv4.Modifier) <-chan *dhcpv4.DHCPv4 {
	t.Helper()
	far, err := netlink.LinkByName("far")
	if err != nil {
		t.Fatal(err)
	}
	addr, _ := netlink.ParseAddr("10.9.0.1/24")
	if err := netlink.AddrAdd(far, addr); err != nil {
		t.Fatal(err)
	}
	asked := make(chan *dhcpv4.DHCPv4, 10)
	answer := func(conn net.PacketConn, _ net.Addr, m *dhcpv4.DHCPv4) {
		select {
		case asked <- m:
		default:
		}
		kind := dhcpv4.MessageTypeAck
		if m.MessageType() == dhcpv4.MessageTypeDiscover {
			kind = dhcpv4.MessageTypeOffer
		}
		reply, err := dhcpv4.NewReplyFromRequest(m, append(options,
			dhcpv4.WithMessageType(kind), dhcpv4.WithYourIP(net.IPv4(10, 9, 0, 2)),
			dhcpv4.WithNetmask(net.CIDRMask(24, 32)), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(10, 9, 0, 1))))...)
		if err == nil {
			_, _ = conn.WriteTo(reply.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: 68})
		}
	}
	server, err := server4.NewServer("far", &net.UDPAddr{Port: 67}, answer)
	if err != nil {
		t.Fatal(err)
	}
	go func() { _ = server.Serve() }()
	t.Cleanup(func() { _ = server.Close() })
	return asked
}

// IP over InfiniBand is found by the GUID in the end of its address.
func TestHardwareAddresses(t *testing.T) {
	const ipoib = "80:00:02:08:fe:80:00:00:00:00:00:00:02:50:00:01:07:90:00:81"
	tests := map[string]struct {
		address, want string
		found         bool
	}{
		"its MAC":                       {"02:00:00:00:00:07", "02:00:00:00:00:07", true},
		"another MAC":                   {"02:00:00:00:00:07", "02:00:00:00:00:08", false},
		"its GUID":                      {ipoib, "02:50:00:01:07:90:00:81", true},
		"another VF's GUID":             {ipoib, "02:50:00:01:07:90:00:80", false},
		"its whole address":             {ipoib, ipoib, true},
		"the GUID's first bytes":        {ipoib, "fe:80:00:00:00:00:00:00", false},
		"a MAC in the end of a GUID":    {ipoib, "00:01:07:90:00:81", false},
		"a GUID, and another interface": {"02:00:00:00:00:07", "00:00:02:00:00:00:00:07", false},
		"the loopback":                  {"", "02:00:00:00:00:07", false},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			address, _ := net.ParseMAC(tt.address)
			want, err := net.ParseMAC(tt.want)
			if err != nil {
				t.Fatal(err)
			}
			if isAt(address, want) != tt.found {
				t.Errorf("found: %v", !tt.found)
			}
		})
	}
}

func TestAnIPoIBInterfaceThatIsNotThere(t *testing.T) {
	n := inNetwork(t, newDouble(t, map[string]string{}))
	ctx, cancel := context.WithTimeoutCause(t.Context(), 50*time.Millisecond, errors.New("enough"))
	defer cancel()
	if err := n.configure(ctx, "vm7", guest.NIC{GUID: "02:50:00:01:07:90:00:81", Address: "172.29.0.8/16"}); err == nil || err.Error() != "enough" {
		t.Errorf("error = %v", err)
	}
	if err := n.configure(t.Context(), "vm7", guest.NIC{GUID: "GUID"}); err == nil || !strings.Contains(err.Error(), "invalid MAC address") {
		t.Errorf("error = %v", err)
	}
}
