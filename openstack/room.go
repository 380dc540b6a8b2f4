package openstack

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/limits"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/services"
	"github.com/gophercloud/gophercloud/v2/openstack/networking/v2/extensions/quotas"
)

// checkHosts refuses hosts that take no servers. That comes before anything is made, with whatever image: a job must not have
// nodes with OpenStack and nodes without.
func (n nova) checkHosts(ctx context.Context, r Request) error {
	return explain("ask nova for the hosts of job "+r.Job, try(ctx, func() error {
		hosts, err := n.computeHosts(ctx)
		if err != nil {
			return err
		}
		return checkHosts(hosts, r.Servers)
	}))
}

// checkRoom refuses, before an image is uploaded, servers for which nova would say afterwards that the project has no quota.
func (n nova) checkRoom(ctx context.Context, r Request) error {
	return explain("ask nova for the VMs of job "+r.Job, try(ctx, func() error {
		has, err := limits.Get(ctx, n.api, nil).Extract()
		if err != nil {
			return err
		}
		return checkQuota(has.Absolute, r)
	}))
}

// computeHosts are nova's compute hosts by the names that servers are pinned to.
func (n nova) computeHosts(ctx context.Context) (map[string]services.Service, error) {
	pages, err := services.List(n.api, services.ListOpts{Binary: "nova-compute"}).AllPages(ctx)
	if err != nil {
		return nil, err
	}
	all, err := services.ExtractServices(pages)
	hosts := map[string]services.Service{}
	for _, s := range all {
		hosts[s.Host] = s
	}
	return hosts, err
}

func checkHosts(hosts map[string]services.Service, servers []Server) (err error) {
	var known, missing []string
	for _, name := range hostsOf(servers) {
		if host, has := hosts[name]; has {
			known = append(known, name)
			err = errors.Join(err, checkHost(host))
		} else {
			missing = append(missing, name)
		}
	}
	if len(missing) > 0 {
		return missingHosts(known, missing)
	}
	return err
}

// hostsOf names each host of the servers once, in their order.
func hostsOf(servers []Server) (hosts []string) {
	for _, s := range servers {
		if !slices.Contains(hosts, s.Host) {
			hosts = append(hosts, s.Host)
		}
	}
	return hosts
}

// missingHosts is the error about nodes that nova does not know. If it knows the others, the job is most likely one with nodes
// of both kinds.
func missingHosts(known, missing []string) error {
	const names = "nova-compute must have Slurm's name of the node (host in nova.conf)"
	if len(known) == 0 {
		return fmt.Errorf("nova has no compute host %s: %s", strings.Join(missing, ", "), names)
	}
	return fmt.Errorf("nova has the job's nodes %s as compute hosts, and not %s: choose nodes of one kind by --partition, --constraint or --exclude; "+
		"if all have OpenStack, %s", strings.Join(known, ", "), strings.Join(missing, ", "), names)
}

func checkHost(host services.Service) error {
	switch {
	case host.Status != "enabled":
		return fmt.Errorf("compute host %s is disabled in nova (%s)", host.Host, host.DisabledReason)
	case host.State != "up":
		return fmt.Errorf("nova-compute on host %s is %s", host.Host, host.State)
	}
	return nil
}

// checkQuota compares what the servers need with what the project has left in nova.
func checkQuota(has limits.Absolute, r Request) error {
	vms := len(r.Servers)
	return errors.Join(
		quota{has.MaxTotalInstances, has.TotalInstancesUsed}.check(vms, "servers"),
		quota{has.MaxTotalCores, has.TotalCoresUsed}.check(vms*r.VCPUs, "vCPUs"),
		quota{has.MaxTotalRAMSize, has.TotalRAMUsed}.check(vms*int(r.MemoryMiB), "MiB of memory"))
}

// checkRoom refuses, before an image is uploaded, servers for whose ports the project has no quota.
func (n neutron) checkRoom(ctx context.Context, r Request) error {
	return explain("ask neutron for the ports of job "+r.Job, try(ctx, func() error {
		has, err := quotas.GetDetail(ctx, n.api, n.project).Extract()
		switch {
		case isGone(err):
			return nil // it does not tell what is used, and refuses ports itself
		case err != nil:
			return err
		}
		return quota{has.Port.Limit, has.Port.Used + has.Port.Reserved}.check(countPorts(r.Servers), "ports")
	}))
}

// countPorts counts the servers' NICs and virtual functions.
func countPorts(servers []Server) (ports int) {
	for _, s := range servers {
		ports += 1 + len(s.VFs)
	}
	return ports
}

// A quota is what a project may have of something, and has. A limit below 0 is none.
type quota struct{ most, used int }

func (q quota) check(wants int, what string) error {
	if q.most < 0 || q.used+wants <= q.most {
		return nil
	}
	return fmt.Errorf("the project's quota is %d %s, of which %d are used, and the job needs %d", q.most, what, q.used, wants)
}
