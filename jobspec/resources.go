package jobspec

import (
	"fmt"
	"strings"

	"github.com/slurm-v/slurm-v/config"
)

// Resources are what the VMs of one node need from Slurm.
type Resources struct {
	CPUsPerNode      int
	MemoryMiBPerNode int64
	VFsPerNode       int
	VFMbpsPerNode    int64 // sum of the VFs' minima
	VFsCounted       bool  // Slurm counts VFs, so that a job must ask for them

	Licenses []License // of the whole job
}

// Resources returns the sum over a node's VMs: their vCPUs; their memory and QEMU's own;
// the shared memory, which exists once per node; their VFs and the bandwidth that these
// reserve. The tags that Slurm counts are those of the whole job.
func (s Spec) Resources(cfg config.Config) Resources {
	perVM := s.MemoryMiB + cfg.Slurm.QEMUOverhead.MiB()
	wish, _ := s.Wish(cfg) // empty for a Spec that Validate refuses
	return Resources{
		CPUsPerNode:      s.VMsPerNode * s.VCPUs,
		MemoryMiBPerNode: int64(s.VMsPerNode)*perVM + s.IVShmem.AllMiB(),
		VFsPerNode:       s.VMsPerNode * len(s.SRIOV.VFs),
		VFMbpsPerNode:    int64(s.VMsPerNode) * s.SRIOV.MinMbps(),
		VFsCounted:       cfg.Slurm.GRES,
		Licenses:         LicensesOf(wish, cfg),
	}
}

// MinMbps returns the sum of the minima of one VM, in Mb/s.
func (s SRIOV) MinMbps() (sum int64) {
	for _, vf := range s.VFs {
		sum += int64(vf.MinMbps)
	}
	return sum
}

// Flat returns the resources in a form that a few lines of Lua can read, such as
// "cpus:4,mem:2560,vf:4,vfbw:80000,lic_vlan:1", with memory in MiB and bandwidth in Mb/s. It
// omits what is not needed, and is empty if that is everything.
func (r Resources) Flat() string {
	var items []string
	add := func(name string, n int64) {
		if n > 0 {
			items = append(items, fmt.Sprintf("%s:%d", name, n))
		}
	}
	add("cpus", int64(r.CPUsPerNode))
	add("mem", r.MemoryMiBPerNode)
	add("vf", int64(r.VFsPerNode))
	add("vfbw", r.VFMbpsPerNode)
	for _, l := range r.Licenses {
		add("lic_"+string(l.Kind), int64(l.Count))
	}
	return strings.Join(items, ",")
}

// Directives returns the lines of a batch script that ask Slurm for the CPUs, the memory
// and, if Slurm counts them, the VFs. It uses --mincpus for the CPUs: unlike
// --ntasks-per-node and --cpus-per-task, that does not change the job's number of tasks. It
// omits licences: a site that counts them has a Lua script which adds them.
func (r Resources) Directives() []string {
	if r.CPUsPerNode == 0 {
		return nil // a job without VMs
	}
	lines := []string{r.cpuDirective(), r.memoryDirective()}
	if r.VFsCounted && r.VFsPerNode > 0 {
		lines = append(lines, r.gresDirective())
	}
	return lines
}

func (r Resources) cpuDirective() string {
	return fmt.Sprintf("#SBATCH --mincpus=%d", r.CPUsPerNode)
}

func (r Resources) memoryDirective() string {
	return fmt.Sprintf("#SBATCH --mem=%s", config.Size(r.MemoryMiBPerNode))
}

// gresDirective asks for the VFs and repeats the other items of the user's own --gres.
func (r Resources) gresDirective(others ...string) string {
	return "#SBATCH --gres=" + r.gres(others...)
}
