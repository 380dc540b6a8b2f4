package plan

import (
	"slices"
)

// coldHere says why the VMs must boot on this node; "" if they can be restored.
func (p Plan) coldHere() string {
	cells := func(vm VM) bool { return len(vm.Pinning.Cells) > 1 }
	unlike := func(vm VM) bool { return p.Topology(vm) != p.Topology(p.VMs[0]) }
	switch {
	case p.Hardware.Foreign:
		return "OpenStack makes the VMs of this node, and has no templates"
	case p.PageKiB != 0:
		return "the VMs' memory has huge pages, and that of a VM from a template has ordinary ones"
	case slices.ContainsFunc(p.VMs, cells):
		return "a VM has CPUs of several NUMA nodes, and a template has one"
	case slices.ContainsFunc(p.VMs, unlike):
		return "some VMs have all hyper-threads of their cores and others do not, and VMs from one template are alike"
	case p.PCIHole() != 0 || p.NVDIMM && p.Job.Spec.IVShmem.AllMiB() > TemplateRoom:
		return "the shared memory needs more address space than a template has"
	}
	return ""
}
