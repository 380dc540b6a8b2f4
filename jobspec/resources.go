package jobspec

import (
	"fmt"

	"github.com/slurm-v/slurm-v/config"
)

// Resources are what the VMs of one node need of Slurm.
type Resources struct {
	CPUsPerNode      int
	MemoryMiBPerNode int64
	VFsPerNode       int
}

// Resources returns the sum over a node's VMs: their vCPUs; their memory and
// QEMU's own beside it; the shared memory, which is there once per node; their VFs.
func (s Spec) Resources(cfg config.Config) Resources {
	perVM := s.MemoryMiB + cfg.Slurm.QEMUOverhead.MiB()
	shared := int64(s.IVShmem.Devices) * s.IVShmem.SizeMiB
	return Resources{
		CPUsPerNode:      s.VMsPerNode * s.VCPUs,
		MemoryMiBPerNode: int64(s.VMsPerNode)*perVM + shared,
		VFsPerNode:       s.VMsPerNode * s.SRIOV.VFs,
	}
}

// Flat returns the resources in a form that a few lines of Lua can read:
// "cpus:4,mem:2560,vf:2", memory in MiB, without the last part if there are no VFs.
func (r Resources) Flat() string {
	flat := fmt.Sprintf("cpus:%d,mem:%d", r.CPUsPerNode, r.MemoryMiBPerNode)
	if r.VFsPerNode > 0 {
		flat += fmt.Sprintf(",vf:%d", r.VFsPerNode)
	}
	return flat
}

// Directives returns the lines of a batch script that ask Slurm for the CPUs and
// the memory. Unlike --ntasks-per-node and --cpus-per-task, --mincpus gives
// every node its CPUs without changing how many tasks the job has.
func (r Resources) Directives() []string {
	return []string{r.cpuDirective(), r.memoryDirective()}
}

func (r Resources) cpuDirective() string {
	return fmt.Sprintf("#SBATCH --mincpus=%d", r.CPUsPerNode)
}

func (r Resources) memoryDirective() string {
	return fmt.Sprintf("#SBATCH --mem=%s", config.Size(r.MemoryMiBPerNode))
}
