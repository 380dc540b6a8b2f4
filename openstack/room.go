package openstack

import (
	"context"
	"errors"
	"fmt"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/limits"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/services"
)

// checkRoom refuses, before an image is uploaded, what nova would refuse afterwards: hosts that take no servers, and
// servers for which the project has no quota.
func (n nova) checkRoom(ctx context.Context, r Request) error {
	return explain("ask nova for the VMs of job "+r.Job, try(ctx, func() error {
		hosts, err := n.computeHosts(ctx)
		if err != nil {
			return err
		}
		quota, err := limits.Get(ctx, n.api, nil).Extract()
		if err != nil {
			return err
		}
		return errors.Join(checkHosts(hosts, r.Servers), checkQuota(quota.Absolute, r))
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
	checked := map[string]bool{}
	for _, s := range servers {
		if !checked[s.Host] {
			checked[s.Host] = true
			err = errors.Join(err, checkHost(hosts, s.Host))
		}
	}
	return err
}

func checkHost(hosts map[string]services.Service, name string) error {
	host, known := hosts[name]
	switch {
	case !known:
		return fmt.Errorf("nova has no compute host %s: nova-compute must have Slurm's name of the node (host in nova.conf)", name)
	case host.Status != "enabled":
		return fmt.Errorf("compute host %s is disabled in nova (%s)", name, host.DisabledReason)
	case host.State != "up":
		return fmt.Errorf("nova-compute on host %s is %s", name, host.State)
	}
	return nil
}

// checkQuota compares what the servers need with what the project has left. A limit below 0 is none.
func checkQuota(has limits.Absolute, r Request) (err error) {
	vms := len(r.Servers)
	for _, of := range []struct {
		what              string
		most, used, wants int
	}{
		{"servers", has.MaxTotalInstances, has.TotalInstancesUsed, vms},
		{"vCPUs", has.MaxTotalCores, has.TotalCoresUsed, vms * r.VCPUs},
		{"MiB of memory", has.MaxTotalRAMSize, has.TotalRAMUsed, vms * int(r.MemoryMiB)},
	} {
		if of.most >= 0 && of.used+of.wants > of.most {
			err = errors.Join(err, fmt.Errorf("the project's quota is %d %s, of which %d are used, and the job needs %d", of.most, of.what, of.used, of.wants))
		}
	}
	return err
}
