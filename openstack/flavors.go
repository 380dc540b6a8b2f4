package openstack

import (
	"context"
	"fmt"
	"strings"

	"github.com/gophercloud/gophercloud/v2/openstack/compute/v2/flavors"
)

// getFlavor returns the id of the site's flavor, or of one that it makes for the job.
func (n nova) getFlavor(ctx context.Context, m mark, r Request) (id string, err error) {
	if r.Flavor != "" {
		return n.findFlavor(ctx, r)
	}
	id, err = n.makeFlavor(ctx, m, r)
	return id, explain("create a flavor for job "+r.Job, err)
}

// makeFlavor makes a flavor that only the site's project sees. It looks first: nova refuses a second flavor of one name,
// so the job takes one that is left of it.
func (n nova) makeFlavor(ctx context.Context, m mark, r Request) (id string, err error) {
	find := func() (string, error) { return n.findMade(ctx, m) }
	err = try(ctx, func() (err error) {
		id, err = find()
		return err
	})
	if err == nil && id == "" {
		id, err = makeOnce(ctx, find, func(ctx context.Context) (string, error) { return n.postFlavor(ctx, m, r) })
	}
	if err != nil {
		return "", err
	}
	return id, there(ctx, func() error {
		return flavors.AddAccess(ctx, n.api, id, flavors.AddAccessOpts{Tenant: n.project}).Err
	})
}

func (n nova) findMade(ctx context.Context, m mark) (string, error) {
	made, err := n.flavorsOf(ctx, m)
	if err != nil || len(made) == 0 {
		return "", err
	}
	return made[0].ID, nil
}

// ofProject ends the name of a job's flavor. A flavor belongs to no project, and administrators
// see all: a cluster in another project may have a job of the same mark.
func (n nova) ofProject() string { return "@" + n.project }

func (n nova) postFlavor(ctx context.Context, m mark, r Request) (string, error) {
	private, disk := false, int((r.DiskMiB+1023)/1024)
	made, err := flavors.Create(ctx, n.api, flavors.CreateOpts{
		Name: string(m) + n.ofProject(), VCPUs: r.VCPUs, RAM: int(r.MemoryMiB), Disk: &disk, IsPublic: &private,
	}).Extract()
	if err != nil {
		return "", err
	}
	return made.ID, nil
}

func (n nova) findFlavor(ctx context.Context, r Request) (string, error) {
	var all []flavors.Flavor
	err := try(ctx, func() (err error) {
		all, err = n.flavors(ctx)
		return err
	})
	if err != nil {
		return "", explain("find the flavor", err)
	}
	for _, f := range all {
		if f.Name == r.Flavor {
			return f.ID, explain("use the flavor", suits(f, r))
		}
	}
	return "", explain("find the flavor", fmt.Errorf("there is no flavor %q (backend.flavor)", r.Flavor))
}

// suits returns an error unless VMs of the site's flavor are as large as the job wants them. Larger ones would have
// CPUs and memory that Slurm gives to other jobs. A disk of 0 GiB is as large as the image.
func suits(f flavors.Flavor, r Request) error {
	if f.VCPUs == r.VCPUs && int64(f.RAM) == r.MemoryMiB && (f.Disk == 0 || int64(f.Disk)<<10 >= r.DiskMiB) {
		return nil
	}
	return fmt.Errorf("all VMs of this site have %d vCPUs, %d MiB of memory and %d GiB of disk (flavor %q), and the job wants %d, %d MiB and %d MiB (--vcpu-per-vm, --memory-per-vm, --disk-size)",
		f.VCPUs, f.RAM, f.Disk, f.Name, r.VCPUs, r.MemoryMiB, r.DiskMiB)
}

func (n nova) flavors(ctx context.Context) ([]flavors.Flavor, error) {
	pages, err := flavors.ListDetail(n.api, flavors.ListOpts{AccessType: flavors.AllAccess}).AllPages(ctx)
	if err != nil {
		return nil, err
	}
	return flavors.ExtractFlavors(pages)
}

func (n nova) flavorsOf(ctx context.Context, m mark) (its []flavors.Flavor, err error) {
	all, err := n.flavors(ctx)
	for _, f := range all {
		if f.Name == string(m)+n.ofProject() {
			its = append(its, f)
		}
	}
	return its, err
}

func (n nova) deleteFlavors(ctx context.Context, m mark) error {
	return removeAll(ctx, func() ([]flavors.Flavor, error) { return n.flavorsOf(ctx, m) },
		func(f flavors.Flavor) error { return flavors.Delete(ctx, n.api, f.ID).ExtractErr() })
}

func (n nova) markedFlavors(ctx context.Context) (marks []string, err error) {
	all, err := n.flavors(ctx)
	for _, f := range all {
		if mark, own := strings.CutSuffix(f.Name, n.ofProject()); own {
			marks = append(marks, mark)
		}
	}
	return marks, err
}
