// Package probe tries on a node what slurmv check cannot see: libvirt, KVM, the kernel's
// networks. The agent runs it as root for the check.
package probe

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"runtime"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/check"
	"github.com/slurm-v/slurm-v/internal/vmnet"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmlaunch"
	"github.com/slurm-v/slurm-v/vmlaunch/hypervisor"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// Run tries everything. client asks Slurm as a launch does, node is this node's name in
// Slurm. Run leaves nothing behind.
func Run(ctx context.Context, cfg config.Config, client slurm.Client, node string) check.Probe {
	var p check.Probe
	_, err := client.Conf(ctx)
	p.SlurmError = text(err)
	p.Libvirt, p.LibvirtError = probeLibvirt()
	p.KVMError = text(hypervisor.KVMUsable("/"))
	if accel, err := hypervisor.ChooseAccel(cfg.QEMU.Accel, "/"); err == nil {
		p.Uncached = hypervisor.MapsUncached(accel, "/")
	}
	p.NodeNetworkError = text(aside(func() error { return rehearse(ctx, 1) }))
	p.JobNetworkError = text(aside(func() error { return rehearse(ctx, 2) }))
	if usesSiteBridges(cfg) {
		p.SiteNetworkError = text(aside(func() error { return rehearseSite(ctx) }))
	}
	p.Underlay, p.UnderlayError = probeUnderlay(cfg.Network["default"])
	p.PeersError = text(probePeers(ctx, client, cfg.Network["default"], node, p.Underlay))
	p.PortHolders = probePorts(cfg.Network)
	if cfg.Backend.Type == config.BackendOpenStack {
		p.Cloud = probeCloud(ctx, cfg, node)
	}
	return p
}

// cloudPatience bounds how long the check waits for a cloud that does not answer.
const cloudPatience = 20 * time.Second

func probeCloud(ctx context.Context, cfg config.Config, node string) *check.Cloud {
	ctx, cancel := context.WithTimeout(ctx, cloudPatience)
	defer cancel()
	has, err := vmlaunch.CloudCapacity(ctx, cfg, node)
	return &check.Cloud{CPUs: has.CPUs, MemoryMiB: has.MemoryMiB, Password: vmlaunch.CloudHasPassword(cfg), Error: text(err)}
}

// probePeers checks that other nodes would accept address as this node's. If slurmctld
// does not answer, another check reports that.
func probePeers(ctx context.Context, c slurm.Client, network config.Network, node, address string) error {
	addr, err := netip.ParseAddr(address)
	if err != nil || network.Peers == config.PeersAny {
		return nil
	}
	is := plan.Peer{Node: node, Addr: addr}
	err = vmlaunch.CheckPeer(ctx, is, map[string]string{node: network.PeerHost(node)}, "default")
	if err == nil || network.Peers != "" {
		return err
	}
	hosts, err := c.NodeAddrs(ctx, []string{node})
	if err != nil {
		return nil
	}
	return vmlaunch.CheckPeer(ctx, is, hosts, "default")
}

// probePorts finds the programs, other than the kernel, that have the ports of the jobs'
// networks.
func probePorts(networks map[string]config.Network) map[string]string {
	holders := map[string]string{}
	for name, network := range networks {
		if network.Type != config.NetworkJob {
			continue
		}
		if holder, taken := vmnet.HolderOf(uint16(network.VXLANPort)); taken {
			holders[name] = holder.String()
		}
	}
	return holders
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

func probeLibvirt() (version, problem string) {
	dir, err := os.MkdirTemp("", "slurmv-probe-")
	if err != nil {
		return "", err.Error()
	}
	defer os.RemoveAll(dir)
	version, err = hypervisor.Probe(dir)
	return version, text(err)
}

func probeUnderlay(network config.Network) (address, problem string) {
	if network.Type != config.NetworkJob {
		return "", ""
	}
	underlay, err := vmnet.AutoUnderlay(network.Underlay)
	if err != nil {
		return "", err.Error()
	}
	return underlay.Addr.String(), ""
}

// usesSiteBridges reports whether VMs can be on a bridge that has other users.
func usesSiteBridges(cfg config.Config) bool {
	for _, network := range cfg.Network {
		if network.Type == config.NetworkBridge {
			return true
		}
	}
	return len(cfg.VF.Software) > 0
}

// aside calls f in a new network namespace. When the only thread in it ends, the
// namespace vanishes with everything that f has made there.
func aside(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			done <- err
			return
		}
		done <- f()
	}()
	return <-done
}

// rehearseSite puts a VM on a bridge of the site.
func rehearseSite(ctx context.Context) error {
	const name = "br0"
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: attrs}); err != nil {
		return err
	}
	id := journal.ID{Job: 1}
	_, err := vmnet.AddTaps(ctx, id, vmnet.Tap{MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Bridge: name})
	return errors.Join(err, vmnet.Delete(ctx, id))
}

// rehearse makes the network of a job with that many nodes, and a tap. The underlay is
// the loopback device.
func rehearse(ctx context.Context, nodes int) error {
	loopback, err := netlink.LinkByName("lo")
	if err == nil {
		err = netlink.LinkSetUp(loopback)
	}
	if err != nil {
		return err
	}
	id := journal.ID{Job: 1}
	address := netip.MustParseAddr("127.0.0.1")
	err = vmnet.Create(ctx, vmnet.Network{ID: id, Nodes: nodes, Port: config.VXLANPort, Underlay: vmnet.Underlay{
		Addr: address, Prefix: netip.PrefixFrom(address, 8), Interface: "lo", MTU: 1500,
	}})
	if err == nil {
		_, err = vmnet.AddTaps(ctx, id, vmnet.Tap{MAC: net.HardwareAddr{2, 0, 0, 0, 0, 1}, Address: address})
	}
	return errors.Join(err, vmnet.Delete(ctx, id))
}
