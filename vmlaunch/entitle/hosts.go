package entitle

import (
	"context"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmlaunch"
)

// Asks are the questions of a launch to slurmctld about the nodes of a job. Each of its
// nodes asks, once for a job with several: what the nodes say of themselves comes by way
// of the user's processes.
func Asks(c slurm.Client, job uint32) vmlaunch.Slurmctld {
	hosts := func(ctx context.Context, network config.Network) (map[string]string, error) {
		record, err := c.Job(ctx, job)
		if err != nil {
			return nil, err
		}
		names, err := c.Hostnames(ctx, record.NodeList)
		hosts := map[string]string{}
		for _, name := range names {
			hosts[name] = network.PeerHost(name)
		}
		return hosts, err
	}
	return vmlaunch.Slurmctld{Hosts: hosts, NodeAddrs: c.NodeAddrs}
}
