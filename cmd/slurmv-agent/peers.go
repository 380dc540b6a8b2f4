package main

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/slurm-v/slurm-v/config"
)

// Which nodes a job has, each of them asks slurmctld, once for a job with several: what
// the nodes say of themselves comes by way of the user's processes.

// The fields of squeue that say which nodes a job has. No user can write anything of
// his own into them.
const nodesFields = "jobid:.20|,nodelist:.65536"

// hostsOf returns what finds the job's nodes: vmlaunch.Job.Hosts.
func hostsOf(job uint32) func(context.Context, config.Network) (map[string]string, error) {
	return func(ctx context.Context, network config.Network) (map[string]string, error) {
		id := strconv.FormatUint(uint64(job), 10)
		text, err := askSlurm(ctx, "squeue", "--noheader", "--jobs="+id, "--Format="+nodesFields)
		if err != nil {
			return nil, err
		}
		list, found := nodesOf(text, id)
		if !found {
			return nil, fmt.Errorf("squeue does not say which nodes job %s has", id)
		}
		return hostsLike(ctx, network, list)
	}
}

// askNodeAddrs is vmlaunch.Job.NodeAddrs. For several nodes slurmctld sends its table of
// all.
func askNodeAddrs(ctx context.Context, nodes []string) (map[string]string, error) {
	text, err := askSlurm(ctx, "scontrol", "--oneliner", "show", "node", strings.Join(nodes, ","))
	return nodeAddrs(text), err
}

// nodesOf finds a job's list of nodes in the lines of nodesFields. A job that has the
// number of its array is listed with the others of that.
func nodesOf(text, job string) (list string, found bool) {
	for line := range strings.Lines(text) {
		id, nodes, _ := strings.Cut(line, "|")
		if list := strings.TrimSpace(nodes); strings.TrimSpace(id) == job && list != "" {
			return list, true
		}
	}
	return "", false
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
