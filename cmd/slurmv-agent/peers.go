package main

import (
	"context"
	"regexp"
	"strings"

	"github.com/slurm-v/slurm-v/config"
)

// Which nodes a job has, each of them asks slurmctld, once for a job with several: what
// the nodes say of themselves comes by way of the user's processes.

// hostsOf returns what finds the job's nodes: vmlaunch.Slurm.Hosts. No user can write
// anything of his own into the list of nodes.
func hostsOf(job uint32) func(context.Context, config.Network) (map[string]string, error) {
	return func(ctx context.Context, network config.Network) (map[string]string, error) {
		_, fields, err := askRecord(ctx, job, "nodelist:.65536")
		if err != nil {
			return nil, err
		}
		return hostsLike(ctx, network, fields[0])
	}
}

// askNodeAddrs is vmlaunch.Slurm.NodeAddrs. For several nodes slurmctld sends its table of
// all.
func askNodeAddrs(ctx context.Context, nodes []string) (map[string]string, error) {
	text, err := askSlurm(ctx, "scontrol", "--oneliner", "show", "node", strings.Join(nodes, ","))
	return nodeAddrs(text), err
}

func hostsLike(ctx context.Context, network config.Network, list string) (map[string]string, error) {
	names, err := hostNames(ctx, list)
	hosts := map[string]string{}
	for _, name := range names {
		hosts[name] = network.PeerHost(name)
	}
	return hosts, err
}

var nodeAddr = regexp.MustCompile(`(?m)^NodeName=(\S+) .*?\bNodeAddr=(\S+)`)

// nodeAddrs reads the lines of scontrol show node. What comes before the address in
// them is the administrator's.
func nodeAddrs(text string) map[string]string {
	hosts := map[string]string{}
	for _, found := range nodeAddr.FindAllStringSubmatch(text, -1) {
		hosts[found[1]] = found[2]
	}
	return hosts
}
