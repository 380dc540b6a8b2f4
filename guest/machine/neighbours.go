package machine

import (
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"

	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/netdump"
)

// setNeighbours tells the kernel the hardware addresses of the job's other VMs.
// They are known, so nobody need ask: no broadcasts, whatever the number of VMs,
// and no "no route to host" because a busy VM was slow to answer one.
func setNeighbours(hosts []guest.Host) error {
	links, err := netdump.Links()
	if err != nil {
		return fmt.Errorf("list network interfaces: %w", err)
	}
	for _, link := range links {
		addrs, err := netdump.Addrs(link, netlink.FAMILY_V4)
		if err != nil {
			return fmt.Errorf("list addresses of %s: %w", link.Attrs().Name, err)
		}
		for _, addr := range addrs {
			if err := neighboursOn(link, addr.IPNet, hosts); err != nil {
				return err
			}
		}
	}
	return nil
}

// neighboursOn sets those of the hosts that are reached through link, where the VM
// itself has the address own.
func neighboursOn(link netlink.Link, own *net.IPNet, hosts []guest.Host) error {
	for _, h := range hosts {
		mac, err := net.ParseMAC(h.MAC)
		addr, parsed := netip.ParseAddr(h.Address)
		if err != nil || parsed != nil || !own.Contains(addr.AsSlice()) || own.IP.Equal(addr.AsSlice()) {
			continue
		}
		err = netlink.NeighSet(&netlink.Neigh{
			LinkIndex: link.Attrs().Index, State: netlink.NUD_PERMANENT, IP: addr.AsSlice(), HardwareAddr: mac,
		})
		if err != nil {
			return fmt.Errorf("set the hardware address of %s on %s: %w", h.Name, link.Attrs().Name, err)
		}
	}
	return nil
}
