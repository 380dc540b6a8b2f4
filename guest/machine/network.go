package machine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/netdump"
)

// nicPatience is how long an interface may take to appear after boot, when its
// driver is loaded late.
const nicPatience = 30 * time.Second

// network gives each interface its address. What keeps the addresses of an
// earlier setup ends.
func (m *Machine) network(ctx context.Context, host string, nics []guest.NIC) error {
	keep, stop := context.WithCancel(context.Background())
	m.mu.Lock()
	if m.stopLeases != nil {
		m.stopLeases()
	}
	m.stopLeases = stop
	m.mu.Unlock()
	if len(nics) == 0 {
		return nil
	}
	m.modules(ctx, "virtio_net")
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("configure the network: %w", err)
	}
	n := &nics4{Handle: handle, keep: keep, m: m}
	if lo, err := n.LinkByName("lo"); err == nil {
		_ = n.LinkSetUp(lo)
	}
	for _, nic := range nics {
		if err := n.configure(ctx, host, nic); err != nil {
			return fmt.Errorf("configure network interface %s: %w", nic.MAC, err)
		}
	}
	return nil
}

// nics4 configures interfaces for IPv4, in the network namespace that its
// handle was made in.
type nics4 struct {
	*netlink.Handle
	keep context.Context // ends what runs on in the background
	m    *Machine
}

func (n *nics4) configure(ctx context.Context, host string, nic guest.NIC) error {
	link, err := n.named(ctx, nic)
	if err != nil {
		return err
	}
	if nic.MTU > 0 {
		if err := n.LinkSetMTU(link, nic.MTU); err != nil {
			return fmt.Errorf("set the MTU to %d: %w", nic.MTU, err)
		}
	}
	if err := n.LinkSetUp(link); err != nil {
		return fmt.Errorf("set the link up: %w", err)
	}
	if err := n.awaitRunning(ctx, link); err != nil {
		return err
	}
	if nic.Address == "dhcp" {
		return n.dhcp(ctx, host, link)
	}
	addr, err := netlink.ParseAddr(nic.Address)
	if err != nil {
		return fmt.Errorf("%.80q is neither an address with a prefix length nor dhcp", nic.Address)
	}
	if err := n.AddrReplace(link, addr); err != nil {
		return fmt.Errorf("set address %s: %w", nic.Address, err)
	}
	changes := make(chan netlink.AddrUpdate)
	if err := netlink.AddrSubscribe(changes, n.keep.Done()); err != nil {
		return fmt.Errorf("watch address %s: %w", nic.Address, err)
	}
	go n.keepAddress(link, addr, changes)
	return nil
}

// named finds the interface and gives it its MAC address.
func (n *nics4) named(ctx context.Context, nic guest.NIC) (netlink.Link, error) {
	if nic.Before == "" {
		return n.find(ctx, nic.MAC)
	}
	link, err := n.find(ctx, nic.Before)
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

// find waits for the interface with that MAC address.
func (n *nics4) find(ctx context.Context, mac string) (netlink.Link, error) {
	want, err := net.ParseMAC(mac)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, nicPatience,
		errors.New("the VM has no such interface; the image may lack its driver (virtio_net)"))
	defer cancel()
	for {
		links, err := netdump.Whole(n.LinkList)
		if err != nil {
			return nil, err
		}
		for _, link := range links {
			if bytes.Equal(link.Attrs().HardwareAddr, want) {
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

// runningPatience is how long a link may take to be running, which it may never be.
const runningPatience = 5 * time.Second

// awaitRunning returns when the kernel has noticed that the link works. It does so some
// time after the link was set up, in a busy VM seconds later, and an MPI library that looks
// at the interfaces before takes this one for a dead one.
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

// keepAddress sets the address again when it is removed: the image's own
// network service may take over an interface that it has no configuration for.
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
