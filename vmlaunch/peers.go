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
)

// A Peer is where another node of the job is, as the map says. The map has come by way
// of the user's own processes: with an address of their choice they would connect the
// VMs to a host that is none of the job's.
type Peer struct {
	Node string
	Addr netip.Addr
}

// askHosts asks early: the answer is there when the map comes.
func (n *Node) askHosts(ctx context.Context) (err error) {
	if !n.plan.checksPeers() {
		return nil
	}
	if n.hosts, err = n.plan.Job.Hosts(ctx, n.plan.Network); err != nil {
		return fmt.Errorf("ask Slurm which nodes the job has: %w", err)
	}
	return nil
}

func (p Plan) checksPeers() bool {
	return p.Network.Type == config.NetworkJob && p.Job.Nodes > 1 && p.Network.Peers != config.PeersAny
}

// connectPeers connects this node's VMs to those of the others, if that is what they are.
func (n *Node) connectPeers(ctx context.Context, peers []Peer) error {
	if err := n.checkPeers(ctx, peers); err != nil {
		return err
	}
	var addrs []netip.Addr
	for _, p := range peers {
		addrs = append(addrs, p.Addr)
	}
	return vmnet.SetPeers(ctx, n.network, addrs)
}

// checkPeers compares where the peers are said to be with what their names resolve to.
// Where that is not it, and the site has no other names for them, it is where slurmctld
// has them: only then is it asked, as its answer is the table of all nodes.
func (n *Node) checkPeers(ctx context.Context, peers []Peer) error {
	if !n.plan.checksPeers() {
		return nil
	}
	err := n.checkPeersAt(ctx, peers, n.hosts)
	if err == nil || n.plan.Network.Peers != "" {
		return err
	}
	addrs, err := n.plan.Job.NodeAddrs(ctx, slices.Sorted(maps.Keys(n.hosts)))
	if err != nil {
		return fmt.Errorf("ask Slurm where the job's nodes are: %w", err)
	}
	return n.checkPeersAt(ctx, peers, addrs)
}

func (n *Node) checkPeersAt(ctx context.Context, peers []Peer, hosts map[string]string) error {
	each, ctx := errgroup.WithContext(ctx)
	each.SetLimit(lookupsAtOnce)
	for _, p := range peers {
		each.Go(func() error { return p.Check(ctx, hosts, n.plan.NetName) })
	}
	return each.Wait()
}

// lookupsAtOnce bounds the questions to the resolver.
const lookupsAtOnce = 16

// Check compares where the peer is with where it ought to be: at the host names or
// addresses of nodes in a network.
func (p Peer) Check(ctx context.Context, hosts map[string]string, network string) error {
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

// lookUp returns the IPv4 addresses of a host name, or the address that it is.
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
