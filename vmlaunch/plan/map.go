package plan

import (
	"fmt"
	"net/netip"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/guest"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/internal/vmnet"
)

// ReadMap takes from the map of the job's VMs what this node needs: the names of all VMs,
// and the peers' addresses. The map comes through the user's own processes. So ReadMap
// makes the names itself, and the caller has to check the peers.
func (p Plan) ReadMap(all []nodeagent.NodeVMs) (hosts []guest.Host, peers []Peer, err error) {
	if len(all) != p.Job.Nodes {
		return nil, nil, fmt.Errorf("the map of the job's VMs has %d nodes instead of %d", len(all), p.Job.Nodes)
	}
	for _, node := range all {
		for _, vm := range node.VMs {
			addr, err := netip.ParseAddr(vm.Address)
			if err != nil {
				return nil, nil, fmt.Errorf("the map of the job's VMs: %w", err)
			}
			host := guest.Host{Name: fmt.Sprintf("vm%d", vm.Number), Address: addr.String()}
			if p.Network.Type == config.NetworkJob {
				host.MAC = vmnet.MAC(p.Job.ID.Job, vm.Number).String()
			}
			hosts = append(hosts, host)
			vfs, err := p.vfHosts(vm.Number)
			if err != nil {
				return nil, nil, err
			}
			hosts = append(hosts, vfs...)
		}
		if node.Rank == p.Job.Rank || node.Underlay == "" {
			continue
		}
		addr, err := netip.ParseAddr(node.Underlay)
		if err != nil {
			return nil, nil, fmt.Errorf("the map of the job's VMs: %w", err)
		}
		peers = append(peers, Peer{node.Node, addr})
	}
	return hosts, peers, nil
}

// A Peer is the address of another node of the job, from the map. The map comes through the
// user's own processes, so it can be forged: it could connect the VMs to a host outside the
// job.
type Peer struct {
	Node string
	Addr netip.Addr
}

// ChecksPeers reports whether the site wants to know that peers are where the map says.
func (p Plan) ChecksPeers() bool {
	return p.HasPeers() && p.Network.Peers != config.PeersAny
}

// HasPeers reports whether the VMs are to be connected with those of other nodes.
func (p Plan) HasPeers() bool { return p.Network.Type == config.NetworkJob && p.Job.Nodes > 1 }
