package plan

import (
	"cmp"
	"slices"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/hugepages"
	"github.com/slurm-v/slurm-v/jobspec"
)

// pageSizes returns the sizes in KiB of the huge pages that the VMs' memory may have, the
// best first; none if it has ordinary pages. Unless the user says otherwise, VMs with VFs
// have huge pages: all of their memory is pinned and mapped in the IOMMU, which is faster
// with fewer pages.
func pageSizes(allowed []config.HugePages, hw Hardware, spec jobspec.Spec) (sizes []uint) {
	switch {
	case hw.Foreign:
		return nil
	case spec.HugePages.Size() != 0:
		return []uint{kib(spec.HugePages)}
	case spec.HugePages == config.HugePagesNo, spec.Start == config.StartWarm, len(spec.SRIOV.VFs) == 0:
		return nil
	}
	for _, h := range []config.HugePages{config.HugePages1G, config.HugePages2M} {
		if slices.Contains(allowed, h) && spec.MemoryMiB%h.Size().MiB() == 0 {
			sizes = append(sizes, kib(h))
		}
	}
	return sizes
}

func kib(h config.HugePages) uint { return uint(h.Size().MiB() << 10) }

// OnPages returns the plan with memory of huge pages of so many KiB.
func (p Plan) OnPages(kib uint) Plan {
	p.PageKiB = kib
	p.Cold = cmp.Or(p.coldHere(), p.Cold)
	return p
}

// Pages returns the huge pages that a VM needs.
func (p Plan) Pages(vm VM) (needs []hugepages.Need) {
	for _, part := range p.MemoryParts(vm) {
		needs = append(needs, hugepages.Need{KiB: p.PageKiB, NUMA: part.NUMA, Pages: uint64(part.MiB<<10) / uint64(p.PageKiB)})
	}
	return needs
}

// A MemoryPart is the part of a VM's memory that is wanted on one NUMA node.
type MemoryPart struct {
	NUMA int // node; -1 for any
	MiB  uint
}

// MemoryParts divides a VM's memory among the NUMA nodes of its CPUs: as many parts as the
// VM has cells, in their order. It is one part if the memory cannot be divided.
func (p Plan) MemoryParts(vm VM) []MemoryPart {
	cells := vm.Pinning.Cells
	sizes := p.cellSizes(cells)
	without := func(c Cell) bool { return !slices.Contains(p.Hardware.Memory, c.NUMA) }
	if sizes == nil || slices.ContainsFunc(cells, without) {
		return []MemoryPart{{NUMA: -1, MiB: uint(p.Job.Spec.MemoryMiB)}}
	}
	parts := make([]MemoryPart, len(cells))
	for i, c := range cells {
		parts[i] = MemoryPart{c.NUMA, sizes[i]}
	}
	return parts
}

// cellSizes divides the VM's memory among the cells in proportion to their CPUs, in whole
// pages, in MiB. It returns nil if a cell would get no page.
func (p Plan) cellSizes(cells []Cell) []uint {
	page := max(p.PageKiB>>10, 1)
	left := uint(p.Job.Spec.MemoryMiB) / page
	cpus := uint(p.Job.Spec.VCPUs)
	var sizes []uint
	for _, c := range cells {
		n := uint(len(c.CPUs))
		part := left * n / cpus
		if part == 0 {
			return nil
		}
		sizes = append(sizes, part*page)
		left, cpus = left-part, cpus-n
	}
	return sizes
}
