package check

import (
	"context"
	"fmt"
	"slices"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/vfpool/device"
	"github.com/slurm-v/slurm-v/vfpool/software"
	"github.com/slurm-v/slurm-v/vfpool/sriov"
)

// findPFs returns the SR-IOV cards of the node below root.
func findPFs(root string) ([]device.PF, []sriov.Finding) {
	node := sriov.Open(root, sriov.Netlink())
	pfs, err := node.PFs()
	if err == nil && len(pfs) == 0 {
		return nil, nil
	}
	return pfs, node.Explain(pfs, err)
}

const (
	vfsName = "SR-IOV"
	noVFs   = "no network device here has it, and the configuration has no [vf.software]: --sriov is refused on this node"
	cloudVF = "VMs of OpenStack have VFs that neutron gives them, and none of Slurm-V's pool"
)

// WithoutVFs returns why --sriov is refused on a node with these results, or "".
func WithoutVFs(results []Result) string {
	if slices.ContainsFunc(results, func(r Result) bool { return r.Name == vfsName && r.Seen == noVFs }) {
		return noVFs
	}
	return ""
}

// vfs reports no errors, since VMs work without VFs.
func vfs(_ context.Context, i *inspection) []Result {
	if i.onCloud() {
		return []Result{skipped(vfsName, cloudVF, "")}
	}
	results := slices.Concat(cards(i.pfs, i.findings), novaVFs(i), bridges(i))
	if len(results) == 0 {
		return []Result{skipped(vfsName, noVFs, "")}
	}
	return results
}

// cards says what prevents the use of VFs, or how many VFs each card has.
func cards(pfs []device.PF, findings []sriov.Finding) []Result {
	const name = vfsName
	var results []Result
	for _, f := range findings {
		seen := f.Seen
		if f.PF != "" {
			seen = f.PF + ": " + seen
		}
		results = append(results, warning(name, seen, f.Advice))
	}
	for _, pf := range pfs {
		if pf.Unusable.Seen == "" {
			results = append(results, ok(name, fmt.Sprintf("%s: %d of %d VFs", pf.Name, len(pf.VFs), pf.TotalVFs)))
		}
	}
	return results
}

// bridges checks the bridges that the configuration declares to be PFs.
func bridges(i *inspection) []Result {
	const name = "software VFs"
	if i.cfgErr != nil || len(i.cfg.VF.Software) == 0 {
		return nil
	}
	pfs, err := software.Open(i.cfg.VF, i.cfg.Fabric.HasPool(config.TagVLAN)).PFs()
	if err != nil {
		return []Result{warning(name, err.Error(), "see [vf.software] of the configuration")}
	}
	var results []Result
	for _, pf := range pfs {
		if pf.Unusable.Seen != "" {
			results = append(results, warning(name, pf.Name+": "+pf.Unusable.String(), "jobs that ask for VFs do not get them of it"))
			continue
		}
		results = append(results, ok(name, fmt.Sprintf("%s: %d VFs", pf.Name, len(pf.VFs))))
		for _, note := range pf.Notes {
			results = append(results, ok(name, pf.Name+": "+note.String()))
		}
	}
	return results
}
