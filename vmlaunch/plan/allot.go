package plan

import (
	"cmp"
	"slices"
)

// A CPU is a CPU of the node, with the kernel's numbers.
type CPU struct {
	Number int
	Core   int // the first CPU of its core; hyper-threads of one core have the same
	NUMA   int // node; -1 where there is but one
}

// allot gives each VM one CPU for each of its vCPUs, and returns the CPUs that are left.
// There must be enough CPUs.
//
// The first goal is that as few VMs as possible lie on several NUMA nodes. The second is
// that VMs share no core: all hyper-threads of a core go to one VM, and those that the VM
// has no use for stay idle or run QEMU's own threads.
func allot(cpus []CPU, vms, vcpus int) (each [][]CPU, left []CPU) {
	each, left = newCores(cpus, false).allot(vms, vcpus)
	if apart, idle := newCores(cpus, true).allot(vms, vcpus); apart != nil && torn(apart) <= torn(each) {
		return apart, idle
	}
	return each, left
}

// torn counts the VMs that lie on several NUMA nodes.
func torn(each [][]CPU) (n int) {
	for _, cpus := range each {
		if len(cellsOf(cpus)) > 1 {
			n++
		}
	}
	return n
}

// cores are the cores with CPUs still to be had, the lowest first.
type cores struct {
	all   []*core
	apart bool // VMs share no core
}

type core struct {
	numa int
	free []CPU
	used bool // a VM has some of it
}

func newCores(cpus []CPU, apart bool) *cores {
	cpus = slices.Clone(cpus)
	slices.SortFunc(cpus, func(a, b CPU) int { return cmp.Or(a.Core-b.Core, a.Number-b.Number) })
	c := &cores{apart: apart}
	for i, cpu := range cpus {
		if i == 0 || cpu.Core != cpus[i-1].Core {
			c.all = append(c.all, &core{numa: cpu.NUMA})
		}
		last := c.all[len(c.all)-1]
		last.free = append(last.free, cpu)
	}
	return c
}

// allot returns nil if there are not enough CPUs.
func (c *cores) allot(vms, vcpus int) (each [][]CPU, left []CPU) {
	for range vms {
		got := c.take(vcpus)
		if got == nil {
			return nil, nil
		}
		each = append(each, got)
	}
	for _, core := range c.all {
		left = append(left, core.free...)
	}
	return each, left
}

// take chooses the CPUs of one VM, grouped by NUMA node. It begins with the NUMA node that
// has the most free CPUs, so that a VM lies on one node if it can: memory of one node is
// faster than memory of several. Since all VMs have the same size, no other choice puts
// more VMs on one node each.
func (c *cores) take(vcpus int) (got []CPU) {
	for len(got) < vcpus {
		numa, free := c.roomiest()
		if free == 0 {
			return nil
		}
		got = append(got, c.takeOn(numa, min(free, vcpus-len(got)))...)
	}
	return got
}

// roomiest returns the NUMA node with the most CPUs to be had, and how many.
func (c *cores) roomiest() (numa, most int) {
	free := map[int]int{}
	for _, core := range c.all {
		if c.offered(core) {
			free[core.numa] += len(core.free)
		}
	}
	for node, n := range free {
		if n > most || n == most && node < numa {
			numa, most = node, n
		}
	}
	return numa, most
}

func (c *cores) offered(core *core) bool { return len(core.free) > 0 && (!c.apart || !core.used) }

// takeOn takes n CPUs of a NUMA node that has at least n free: whole cores first, then a
// part of one.
func (c *cores) takeOn(numa, n int) (got []CPU) {
	for n > 0 {
		core := c.fit(numa, n)
		k := min(n, len(core.free))
		got = append(got, core.free[:k]...)
		core.free, core.used = core.free[k:], true
		n -= k
	}
	slices.SortFunc(got, func(a, b CPU) int { return a.Number - b.Number })
	return got
}

// fit chooses the core with the most free CPUs among those that n CPUs use up. If there is
// none, it chooses the core with the fewest free CPUs.
func (c *cores) fit(numa, n int) (best *core) {
	for _, core := range c.all {
		if core.numa != numa || !c.offered(core) {
			continue
		}
		if best == nil || remains(core, n) < remains(best, n) {
			best = core
		}
	}
	return best
}

// remains orders cores by how well they fit n CPUs, the best lowest.
func remains(core *core, n int) int {
	if len(core.free) <= n {
		return -len(core.free)
	}
	return len(core.free)
}

// A Cell is a VM's part on one of the node's NUMA nodes.
type Cell struct {
	NUMA int // node; -1 where there is but one
	CPUs []int
}

// cellsOf groups CPUs by NUMA node. CPUs of one node must stand together in cpus.
func cellsOf(cpus []CPU) (cells []Cell) {
	for i, cpu := range cpus {
		if i == 0 || cpu.NUMA != cpus[i-1].NUMA {
			cells = append(cells, Cell{NUMA: cpu.NUMA})
		}
		last := &cells[len(cells)-1]
		last.CPUs = append(last.CPUs, cpu.Number)
	}
	return cells
}

// emulatorCPUs chooses, from the CPUs that are left, those for QEMU's threads that are not
// vCPUs. It prefers cores of which no VM has a part, close to the VM if possible; then the
// rest of the VM's own cores. If nothing of this is left, the threads run among the VM's
// vCPUs.
func emulatorCPUs(mine []CPU, each [][]CPU, left []CPU) []int {
	near, own, taken := map[int]bool{}, map[int]bool{}, map[int]bool{}
	for _, cpu := range mine {
		near[cpu.NUMA], own[cpu.Core] = true, true
	}
	for _, cpu := range slices.Concat(each...) {
		taken[cpu.Core] = true
	}
	for _, good := range []func(CPU) bool{
		func(c CPU) bool { return !taken[c.Core] && near[c.NUMA] },
		func(c CPU) bool { return !taken[c.Core] },
		func(c CPU) bool { return own[c.Core] },
	} {
		if chosen := numbers(left, good); len(chosen) > 0 {
			return chosen
		}
	}
	return numbers(mine, func(CPU) bool { return true })
}

// numbers returns the sorted numbers of the CPUs for which good is true.
func numbers(cpus []CPU, good func(CPU) bool) (all []int) {
	for _, cpu := range cpus {
		if good(cpu) {
			all = append(all, cpu.Number)
		}
	}
	slices.Sort(all)
	return all
}
