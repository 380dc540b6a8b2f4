package plan

import (
	"slices"
)

// coldHere says why the VMs must boot on this node; "" if they can be restored.
func (p Plan) coldHere() string {
	cells := func(vm VM) bool { return len(vm.Pinning.Cells) > 1 }
	switch {
	case p.Hardware.HugePage != 0:
		return "the VMs' memory is of huge pages, and a template's is not"
	case slices.ContainsFunc(p.VMs, cells):
		return "a VM has CPUs of several NUMA nodes, and a template has one"
	case p.PCIHole() != 0:
		return "the shared memory needs more address space than a template has"
	}
	return ""
}
