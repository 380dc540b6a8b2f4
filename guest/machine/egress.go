package machine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/guest"
)

// egressMetric makes any other default route win, such as that of a site's network.
const egressMetric = 4000

// Egress makes an interface that leads out of the job's network, with a default route, and
// asks its other end for names. Each read and write of the returned device is one packet.
func (m *Machine) Egress(ctx context.Context) (io.ReadWriteCloser, error) {
	m.modules(ctx, "tun")
	device, err := openTUN(m.path("dev/net/tun"))
	if err != nil {
		return nil, fmt.Errorf("the image's kernel has no TUN (module tun): %w", err)
	}
	err = routeOut()
	if err == nil {
		err = m.askGateway()
	}
	if err != nil {
		return nil, errors.Join(err, device.Close())
	}
	return ipv4Only{device}, nil
}

// ipv4Only drops packets of IPv6, by which the kernel looks for routers and neighbours.
type ipv4Only struct{ *os.File }

func (d ipv4Only) Read(packet []byte) (int, error) {
	for {
		n, err := d.File.Read(packet)
		if err != nil || n > 0 && packet[0]>>4 == 4 {
			return n, err
		}
	}
}

// openTUN makes the interface. It is gone when the file is closed.
func openTUN(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	request, err := unix.NewIfreq(guest.EgressLink)
	if err == nil {
		request.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, request)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, err
	}
	return os.NewFile(uintptr(fd), path), nil
}

// routeOut routes to the gateway and, unless there is another default route, to all other networks. The interface has no
// address, since all VMs would have the same: Open MPI (btl/tcp) takes addresses of one network for ways to each other, and
// each VM would connect to itself. The kernel sends from the VM's address in the job's network, which every VM with a way
// out has. The node's end takes any.
func routeOut() error {
	link, err := netlink.LinkByName(guest.EgressLink)
	if err != nil {
		return err
	}
	gateway := &net.IPNet{IP: guest.EgressGateway.AsSlice(), Mask: net.CIDRMask(32, 32)}
	all := &net.IPNet{IP: net.IPv4zero, Mask: net.CIDRMask(0, 32)}
	for _, step := range []error{
		netlink.LinkSetMTU(link, guest.EgressMTU),
		netlink.LinkSetUp(link),
		netlink.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: gateway, Scope: netlink.SCOPE_LINK}),
		netlink.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: all, Scope: netlink.SCOPE_LINK, Priority: egressMetric}),
	} {
		if step != nil {
			return fmt.Errorf("configure the interface %s: %w", guest.EgressLink, step)
		}
	}
	return nil
}

// askGateway makes programs ask the gateway for names. In place of a link to a file of
// systemd-resolved it writes a file, which systemd-resolved then goes by, too.
func (m *Machine) askGateway() error {
	path := m.path("etc/resolv.conf")
	if info, err := os.Lstat(path); err == nil && info.Mode()&os.ModeSymlink != 0 {
		if err := os.Remove(path); err != nil {
			return err
		}
	}
	return writeFile(path, "# written by slurmv-guest: the node answers\nnameserver "+guest.EgressGateway.String()+"\n", 0o644)
}
