package entitle

import (
	"context"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmlaunch"
)

// Asks returns the questions that a launch puts to slurmctld about the nodes of a job.
// Every node of a job with several nodes asks once. The nodes do not learn this from each
// other, because their messages pass through the user's processes.
func Asks(c slurm.Client, job uint32) vmlaunch.Slurmctld {
	nodes := func(ctx context.Context) ([]string, error) {
		record, err := c.Job(ctx, job)
		if err != nil {
			return nil, err
		}
		return c.Hostnames(ctx, record.NodeList)
	}
	hosts := func(ctx context.Context, network config.Network) (map[string]string, error) {
		names, err := nodes(ctx)
		hosts := map[string]string{}
		for _, name := range names {
			hosts[name] = network.PeerHost(name)
		}
		return hosts, err
	}
	return vmlaunch.Slurmctld{Hosts: hosts, Nodes: nodes, NodeAddrs: c.NodeAddrs}
}
