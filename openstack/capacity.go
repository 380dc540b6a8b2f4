package openstack

import (
	"context"
	"fmt"

	"github.com/gophercloud/gophercloud/v2/openstack"
	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/hypervisors"
	"github.com/gophercloud/gophercloud/v2/openstack/placement/v1/resourceproviders"
)

// A Capacity is what VMs may have on a host, all together.
type Capacity struct {
	CPUs      int
	MemoryMiB int64
}

// Capacity asks placement what nova may give to VMs on the compute host of that name: of each
// resource (total − reserved) × allocation_ratio, as in the documentation of placement's
// inventories.
func (c *Cloud) Capacity(ctx context.Context, host string) (has Capacity, err error) {
	err = try(ctx, func() error {
		name, err := c.nova.hypervisorOf(ctx, host)
		if err != nil {
			return err
		}
		there, err := c.catalog.find("placement", openstack.NewPlacementV1)
		if err == nil {
			has, err = placement{there}.capacity(ctx, name)
		}
		return err
	})
	return has, explain("ask nova and placement for the compute host "+host, err)
}

// hypervisorOf is placement's name for a compute host. Servers are put on a host by the name of its nova-compute ("host" in
// nova.conf). libvirt's name of the host is often longer.
func (n nova) hypervisorOf(ctx context.Context, host string) (string, error) {
	pages, err := hypervisors.List(n.api, nil).AllPages(ctx)
	if err != nil {
		return "", err
	}
	all, err := hypervisors.ExtractHypervisors(pages)
	if err != nil {
		return "", err
	}
	for _, h := range all {
		if h.Service.Host == host {
			return h.HypervisorHostname, nil
		}
	}
	return "", fmt.Errorf("nova has no compute host %s", host)
}

func (p placement) capacity(ctx context.Context, hypervisor string) (Capacity, error) {
	pages, err := resourceproviders.List(p.api, resourceproviders.ListOpts{Name: hypervisor}).AllPages(ctx)
	if err != nil {
		return Capacity{}, err
	}
	found, err := resourceproviders.ExtractResourceProviders(pages)
	if err != nil {
		return Capacity{}, err
	}
	if len(found) == 0 {
		return Capacity{}, fmt.Errorf("placement has no provider %s, as nova calls the hypervisor there", hypervisor)
	}
	all, err := resourceproviders.GetInventories(ctx, p.api, found[0].UUID).Extract()
	if err != nil {
		return Capacity{}, err
	}
	return Capacity{CPUs: int(amount(all.Inventories["VCPU"])), MemoryMiB: amount(all.Inventories["MEMORY_MB"])}, nil
}

func amount(i resourceproviders.Inventory) int64 {
	return int64(float32(i.Total-i.Reserved) * i.AllocationRatio)
}
