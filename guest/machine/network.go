package machine

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/netdump"
)

// devicePatience is how long a device may take until it can be used: the kernel may load its
// driver late in the boot, and on a busy node a VM has little of a CPU.
const devicePatience = 2 * time.Minute

// A nic is an interface with an address.
type nic struct {
	*netlink.LinkAttrs
	mac string // or its port's GUID
	own *net.IPNet
}

// network gives each interface its address. It first ends the goroutines that keep the
// addresses of an earlier setup.
func (m *Machine) network(ctx context.Context, host string, nics []guest.NIC) error {
	keep := m.afresh()
	if len(nics) == 0 {
		return nil
	}
	m.modules(ctx, "virtio_net")
	if slices.ContainsFunc(nics, func(n guest.NIC) bool { return n.GUID != "" }) {
		m.modules(ctx, "ib_ipoib")
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("configure the network: %w", err)
	}
	n := &nics4{Handle: handle, keep: keep, m: m}
	for _, nic := range nics {
		if err := n.configure(ctx, host, nic); err != nil {
			return fmt.Errorf("configure network interface %s: %w", nic.MAC+nic.GUID, err)
		}
	}
	return nil
}

// afresh forgets the interfaces of an earlier setup. The context that it returns ends at
// the next call.
func (m *Machine) afresh() context.Context {
	keep, stop := context.WithCancel(context.Background())
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.stopLeases != nil {
		m.stopLeases()
	}
	m.stopLeases, m.nics = stop, nil
	return keep
}

// interfaces returns the interfaces that have got an address.
func (m *Machine) interfaces() []nic {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.nics)
}

// nics4 configures interfaces for IPv4, in the network namespace of its handle.
type nics4 struct {
	*netlink.Handle
	keep context.Context // its end stops the background goroutines
	m    *Machine
}

func (n *nics4) configure(ctx context.Context, host string, want guest.NIC) error {
	link, err := n.named(ctx, want)
	if err != nil {
		return err
	}
	if want.MTU > 0 && want.MTU != link.Attrs().MTU {
		if err := n.LinkSetMTU(link, want.MTU); err != nil {
			return fmt.Errorf("set the MTU to %d: %w", want.MTU, err)
		}
	}
	if want.IPv4Only {
		n.withoutIPv6(link)
	}
	if err := n.LinkSetUp(link); err != nil {
		return fmt.Errorf("set the link up: %w", err)
	}
	if err := n.awaitRunning(ctx, link); err != nil {
		return err
	}
	place := n.static
	if want.Address == "dhcp" {
		place = n.dhcp
	}
	own, err := place(ctx, host, link, want)
	if err != nil {
		return err
	}
	n.m.mu.Lock()
	defer n.m.mu.Unlock()
	n.m.nics = append(n.m.nics, nic{link.Attrs(), want.MAC + want.GUID, own})
	return nil
}

// withoutIPv6 switches IPv6 off on a link, so that the kernel does not look for addresses,
// neighbours and routers that it cannot find. It is not an error if the kernel has no IPv6.
func (n *nics4) withoutIPv6(link netlink.Link) {
	err := os.WriteFile(n.m.path("proc/sys/net/ipv6/conf", link.Attrs().Name, "disable_ipv6"), []byte("1"), 0)
	if err != nil {
		n.m.log().Debug("IPv6 stays", "interface", link.Attrs().Name, "err", err)
	}
}

// static gives the interface the wanted address, and sets it again if something removes it.
func (n *nics4) static(_ context.Context, _ string, link netlink.Link, want guest.NIC) (*net.IPNet, error) {
	addr, err := netlink.ParseAddr(want.Address)
	if err != nil {
		return nil, fmt.Errorf("%.80q is neither an address with a prefix length nor dhcp", want.Address)
	}
	if err := n.AddrReplace(link, addr); err != nil {
		return nil, fmt.Errorf("set address %s: %w", want.Address, err)
	}
	changes := make(chan netlink.AddrUpdate)
	if err := netlink.AddrSubscribe(changes, n.keep.Done()); err != nil {
		return nil, fmt.Errorf("watch address %s: %w", want.Address, err)
	}
	go n.keepAddress(link, addr, changes)
	return addr.IPNet, nil
}

// named finds the interface and, if it has another MAC address before, sets the wanted one.
func (n *nics4) named(ctx context.Context, nic guest.NIC) (netlink.Link, error) {
	if nic.GUID != "" {
		return n.find(ctx, nic.GUID, "ib_ipoib")
	}
	if nic.Before == "" {
		return n.find(ctx, nic.MAC, "virtio_net")
	}
	link, err := n.find(ctx, nic.Before, "virtio_net")
	if err != nil {
		return nil, err
	}
	mac, err := net.ParseMAC(nic.MAC)
	if err != nil {
		return nil, err
	}
	if err := n.LinkSetHardwareAddr(link, mac); err != nil {
		return nil, fmt.Errorf("set the MAC address: %w", err)
	}
	return link, nil
}

// find waits for the interface with that MAC address or port GUID. It also sets the loopback
// up, if it is down.
func (n *nics4) find(ctx context.Context, address, driver string) (netlink.Link, error) {
	want, err := net.ParseMAC(address)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, devicePatience,
		fmt.Errorf("the VM has no such interface; the image may lack its driver (%s)", driver))
	defer cancel()
	for {
		links, err := netdump.Whole(n.LinkList)
		if err != nil {
			return nil, err
		}
		for _, link := range links {
			if link.Attrs().Flags&(net.FlagLoopback|net.FlagUp) == net.FlagLoopback {
				_ = n.LinkSetUp(link)
			}
			if isAt(link.Attrs().HardwareAddr, want) {
				return link, nil
			}
		}
		select {
		case <-time.After(20 * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// isAt reports whether an interface's hardware address is the wanted one. That of IP over
// InfiniBand has 20 bytes, of which the last eight are the GUID of the port (RFC 4391, 9.1.1).
func isAt(address, want net.HardwareAddr) bool {
	if len(want) == 8 && len(address) == 20 {
		address = address[12:]
	}
	return bytes.Equal(address, want)
}

// runningPatience is how long to wait until a link is running. Some links never are.
const runningPatience = 5 * time.Second

// awaitRunning returns when the kernel has noticed that the link works. The kernel notices
// it some time after the link was set up, in a busy VM seconds later. An MPI library that
// looks at the interfaces earlier takes this one for dead.
func (n *nics4) awaitRunning(ctx context.Context, link netlink.Link) error {
	for end := time.Now().Add(runningPatience); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		now, err := n.LinkByIndex(link.Attrs().Index)
		if err != nil {
			return fmt.Errorf("look at the link: %w", err)
		}
		if now.Attrs().RawFlags&unix.IFF_RUNNING != 0 {
			return nil
		}
	}
	n.m.log().Warn("the link is up but does not run", "interface", link.Attrs().Name)
	return ctx.Err()
}

// keepAddress sets the address again when it is removed: the image's own network service
// may remove it from an interface that the service has no configuration for.
func (n *nics4) keepAddress(link netlink.Link, addr *netlink.Addr, changes <-chan netlink.AddrUpdate) {
	for c := range changes {
		if c.NewAddr || c.LinkIndex != link.Attrs().Index || !c.LinkAddress.IP.Equal(addr.IP) || n.keep.Err() != nil {
			continue
		}
		n.m.log().Warn("something in the image removed the VM's address; it is set again", "address", addr)
		_ = n.LinkSetUp(link)
		if err := n.AddrReplace(link, addr); err != nil {
			n.m.log().Error("address not set again", "address", addr, "err", err)
		}
	}
}
