package entitle

import (
	"context"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmlaunch"
)

// LetAsk gives the job the means to ask which nodes it has. Each of its nodes asks, once
// for a job with several: what the nodes say of themselves comes by way of the user's
// processes.
func LetAsk(c slurm.Client, job *vmlaunch.Job) {
	id := job.ID.Job
	job.NodeAddrs = c.NodeAddrs
	job.Hosts = func(ctx context.Context, network config.Network) (map[string]string, error) {
		record, err := c.Job(ctx, id)
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
}
