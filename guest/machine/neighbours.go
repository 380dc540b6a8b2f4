package machine

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/guest"
)

// setNeighbours tells the kernel the hardware addresses of the job's other VMs. The kernel
// then need not ask for them: there are no broadcasts, however many VMs there are, and no
// "no route to host" because a busy VM answered too late.
func (m *Machine) setNeighbours(hosts []guest.Host) error {
	kernel, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("set hardware addresses: %w", err)
	}
	defer kernel.Close()
	for _, n := range m.interfaces() {
		if err := n.setNeighbours(kernel, hosts); err != nil {
			return err
		}
	}
	return nil
}

// setNeighbours sets the addresses of those hosts that are reached through the interface.
func (n nic) setNeighbours(kernel *netlink.Handle, hosts []guest.Host) error {
	for _, h := range hosts {
		mac, err := net.ParseMAC(h.MAC)
		addr, parsed := netip.ParseAddr(h.Address)
		if err != nil || parsed != nil || !n.own.Contains(addr.AsSlice()) || n.own.IP.Equal(addr.AsSlice()) {
			continue
		}
		err = kernel.NeighSet(&netlink.Neigh{
			LinkIndex: n.Index, State: netlink.NUD_PERMANENT, IP: addr.AsSlice(), HardwareAddr: mac,
		})
		if err != nil {
			return fmt.Errorf("set the hardware address of %s on %s: %w", h.Name, n.Name, err)
		}
	}
	return nil
}
