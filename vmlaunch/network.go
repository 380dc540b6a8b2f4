package vmlaunch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/vmnet"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// Slurmctld answers questions about a job's nodes that only slurmctld can answer.
type Slurmctld struct {
	// Hosts returns the job's nodes, and for each node's name its host name in the network.
	Hosts func(context.Context, config.Network) (map[string]string, error)
	// Nodes returns the job's nodes in the order of their ranks.
	Nodes func(context.Context) ([]string, error)
	// NodeAddrs returns the host names or addresses by which slurmctld knows nodes.
	NodeAddrs func(ctx context.Context, nodes []string) (map[string]string, error)
}

// A network is this node's part of the network that connects the VMs of a job.
type network struct {
	plan  plan.Plan
	slurm Slurmctld

	job   vmnet.Network     // zero where the VMs are on a bridge of the site
	hosts map[string]string // of the job's nodes, by their names; see Slurmctld.Hosts
	mtu   int               // of the VMs' NICs
}

// create makes the job's network on this node, with a tap for every VM.
func (w *network) create(ctx context.Context) error {
	if err := w.createBridge(ctx); err != nil {
		return err
	}
	taps, err := taps(w.plan)
	if err != nil {
		return err
	}
	w.mtu, err = vmnet.AddTaps(ctx, w.plan.Job.ID, taps...)
	return err
}

// createBridge makes the bridge of a job's own network. A bridge of the site exists
// already.
func (w *network) createBridge(ctx context.Context) error {
	if w.plan.Network.Type != config.NetworkJob {
		return nil
	}
	w.job = vmnet.Network{ID: w.plan.Job.ID, Nodes: w.plan.Job.Nodes, Port: uint16(w.plan.Network.VXLANPort)}
	if w.plan.HasPeers() {
		underlay, err := vmnet.AutoUnderlay(w.plan.Network.Underlay)
		if err != nil {
			return err
		}
		w.job.Underlay = underlay
	}
	return vmnet.Create(ctx, w.job)
}

// underlay is the address by which other nodes reach this one; "" if they need not.
func (w *network) underlay() string {
	if !w.job.Underlay.Addr.IsValid() {
		return ""
	}
	return w.job.Underlay.Addr.String()
}

// taps returns the host's ends of the VMs' NICs.
func taps(p plan.Plan) (all []vmnet.Tap, err error) {
	for _, vm := range p.VMs {
		mac, err := net.ParseMAC(vm.MAC)
		if err != nil {
			return nil, err
		}
		t := vmnet.Tap{Index: vm.Index, MAC: mac, Queues: p.Queues()}
		if p.Network.Type == config.NetworkJob {
			t.Address = vm.Address.Addr()
		} else {
			t.Bridge = p.Network.Bridge
		}
		all = append(all, t)
	}
	return all, nil
}

// askHosts asks for the job's nodes early, so the answer is there when the map comes.
func (w *network) askHosts(ctx context.Context) (err error) {
	if !w.plan.ChecksPeers() {
		return nil
	}
	if w.hosts, err = w.slurm.Hosts(ctx, w.plan.Network); err != nil {
		return fmt.Errorf("ask Slurm which nodes the job has: %w", err)
	}
	return nil
}

// connect connects this node's VMs to the VMs of the peers, if the job has its own network
// on several nodes.
func (w *network) connect(ctx context.Context, peers []plan.Peer) error {
	if !w.plan.HasPeers() {
		return nil
	}
	if err := w.checkPeers(ctx, peers); err != nil {
		return err
	}
	var addrs []netip.Addr
	for _, p := range peers {
		addrs = append(addrs, p.Addr)
	}
	return vmnet.SetPeers(ctx, w.job, addrs)
}

// checkPeers compares the peers' addresses with those that the nodes' names resolve to. If
// they differ, and the site names no other hosts for its nodes, it compares with the
// addresses that slurmctld knows. It asks slurmctld only then, because the answer is the
// table of all nodes.
func (w *network) checkPeers(ctx context.Context, peers []plan.Peer) error {
	if !w.plan.ChecksPeers() {
		return nil
	}
	err := w.checkPeersAt(ctx, peers, w.hosts)
	if err == nil || w.plan.Network.Peers != "" {
		return err
	}
	addrs, err := w.slurm.NodeAddrs(ctx, slices.Sorted(maps.Keys(w.hosts)))
	if err != nil {
		return fmt.Errorf("ask Slurm where the job's nodes are: %w", err)
	}
	return w.checkPeersAt(ctx, peers, addrs)
}

func (w *network) checkPeersAt(ctx context.Context, peers []plan.Peer, hosts map[string]string) error {
	each, ctx := errgroup.WithContext(ctx)
	each.SetLimit(lookupsAtOnce)
	for _, p := range peers {
		each.Go(func() error { return CheckPeer(ctx, p, hosts, w.plan.NetName) })
	}
	return each.Wait()
}

// lookupsAtOnce bounds the questions to the resolver.
const lookupsAtOnce = 16

// CheckPeer returns an error unless the peer's address is one of its node's. hosts has the
// host names or addresses of nodes in a network, by node.
func CheckPeer(ctx context.Context, p plan.Peer, hosts map[string]string, network string) error {
	host, known := hosts[p.Node]
	if !known {
		return fmt.Errorf("%q, which is to be at %v, is no node of this job", p.Node, p.Addr)
	}
	addrs, err := lookUp(ctx, host)
	if err != nil {
		return fmt.Errorf("look up where node %s is: %w; see peers in [network.%s] of the configuration", p.Node, err, network)
	}
	if !slices.Contains(addrs, p.Addr) {
		return fmt.Errorf("node %s is said to be at %v, but %s is at %v; if it is there in the underlay, set peers in [network.%s] of the configuration",
			p.Node, p.Addr, host, addrs, network)
	}
	return nil
}

// lookUp returns the IPv4 addresses of host, which is a host name or an IPv4 address.
func lookUp(ctx context.Context, host string) ([]netip.Addr, error) {
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip4", host)
	for i := range addrs {
		addrs[i] = addrs[i].Unmap()
	}
	if err == nil && len(addrs) == 0 {
		err = errors.New(host + " has no IPv4 address")
	}
	return addrs, err
}
