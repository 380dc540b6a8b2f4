package prove

import (
	"fmt"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/check"
	"github.com/slurm-v/slurm-v/internal/workload"
	"github.com/slurm-v/slurm-v/jobspec"
)

// A Request says what is to be proven, and with how much.
type Request struct {
	Image     string // of the VMs; "" for the site's default
	Nodes     int
	VMs       int // on each node
	VCPUs     int // of each VM
	MemoryMiB int64
	SRIOV     string   // as --sriov; "" for no virtual functions
	IVShmem   int      // devices; -1 for one where QEMU has them
	HugePages string   // as --vm-hugepages; "" for what the site has chosen
	Program   string   // command line of a program of the site's that is also measured; "" for none
	Rounds    int      // how often everything is measured, on each side
	Minutes   int      // time limit of the jobs with VMs
	Quick     bool     // small measurements, no time limit to wait for
	Options   []string // further options of sbatch for all jobs: partition, account and such
	On        []string // the nodes, when they are known; Nodes is their number
	Programs  Programs
}

// Programs are paths that are the same on all hosts.
type Programs struct{ Slurmv, Run, Workload string }

// LeastRounds is how often both sides have to be measured before their difference is
// judged.
const LeastRounds = 5

// Validate returns an error for a request that no site could fulfil.
func (r Request) Validate() error {
	for _, n := range []struct {
		flag        string
		value, most int
	}{{"--nodes", r.Nodes, 1024}, {"--vm-per-node", r.VMs, 64}, {"--vcpu-per-vm", r.VCPUs, 256}, {"--rounds", r.Rounds, 1000}, {"--time", r.Minutes, 1 << 20}} {
		if n.value < 1 || n.value > n.most {
			return fmt.Errorf("%s: %d is not from 1 to %d", n.flag, n.value, n.most)
		}
	}
	if r.IVShmem < -1 || r.IVShmem > 16 {
		return fmt.Errorf("--ivshmem: %d is not from 0 to 16", r.IVShmem)
	}
	if least := r.LeastMemoryMiB(); r.MemoryMiB < least {
		return fmt.Errorf("--memory-per-vm: %d MiB are too few for a system and %d ranks, which measure memory; use at least %d", r.MemoryMiB, r.VCPUs, least)
	}
	return nil
}

// LeastMemoryMiB is what a VM needs for its system and for the ranks on its CPUs.
func (r Request) LeastMemoryMiB() int64 { return 256 + int64(r.VCPUs)*r.rankMiB() }

// rankMiB is the memory of a rank that measures: its arrays and the program.
func (r Request) rankMiB() int64 { return int64(3*8*r.load().Elements)>>20 + 48 }

// Placed returns the request for these nodes, which all further jobs get.
func (r Request) Placed(nodes []string) Request {
	r.On, r.Nodes = nodes, len(nodes)
	return r
}

// Possible returns the request without what slurmv check says that these nodes cannot do,
// and the reasons by the steps that are left out.
func (r Request) Possible(checks [][]check.Result) (possible Request, without map[string]string) {
	without = map[string]string{}
	for _, results := range checks {
		if why := check.WithoutIVShmem(results); why != "" && r.IVShmem < 0 {
			without[stepShare] = why
		}
		if why := check.WithoutVFs(results); why != "" && r.SRIOV != "" {
			without[stepVFs] = why
		}
	}
	if r.VMs == 1 {
		without[stepShare] = "one VM on each node has none to share with; --vm-per-node=2 does"
	}
	if without[stepShare] != "" {
		r.IVShmem = 0
	}
	if without[stepVFs] != "" {
		r.SRIOV = ""
	}
	if r.IVShmem < 0 {
		r.IVShmem = 1
	}
	return r, without
}

func (r Request) ranksPerNode() int { return r.VMs * r.VCPUs }
func (r Request) ranks() int        { return r.Nodes * r.ranksPerNode() }

// load is what a measurement does. Emulated VMs compute some fifty times slower than their
// node, so a quick load must be small.
func (r Request) load() workload.Load {
	if r.Quick {
		return workload.Load{Loops: 1e6, Elements: 1 << 17, Passes: 10, Answers: 100, Blocks: 4}
	}
	return workload.Load{Loops: 1e8, Elements: 1 << 22, Passes: 40, Answers: 5000, Blocks: 256}
}

// bareMiB is the memory that the ranks on a bare node need beside the VMs.
func (r Request) bareMiB() int64 { return int64(r.ranksPerNode()) * r.rankMiB() }

// vmOptions are the options of a job with VMs as the plugin has them, by their names.
func (r Request) vmOptions() map[string]string {
	o := map[string]string{
		"vm-per-node": fmt.Sprint(r.VMs), "vcpu-per-vm": fmt.Sprint(r.VCPUs), "memory-per-vm": fmt.Sprintf("%dM", r.MemoryMiB),
	}
	if r.Image != "" {
		o["vm-image"] = r.Image
	}
	if r.SRIOV != "" {
		o["sriov"] = r.SRIOV
	}
	if r.HugePages != "" {
		o["vm-hugepages"] = r.HugePages
	}
	if r.IVShmem > 0 {
		o["ivshmem"] = fmt.Sprintf("%d:1M", r.IVShmem)
	}
	return o
}

// resources are the #SBATCH lines that ask for the VMs and, beside them, for extra memory:
// not every site's script adds them to a job.
func (r Request) resources(cfg config.Config, extraMiB int64) ([]string, error) {
	options := r.vmOptions()
	options["vm-image"] = "/any" // it changes nothing here; sbatch and the nodes say what is wrong with one
	spec, err := jobspec.ParseIn("/any", options, func(string) string { return "" }, cfg)
	if err != nil {
		return nil, err
	}
	need := spec.Resources(cfg)
	need.MemoryMiBPerNode += extraMiB
	return need.Directives(), nil
}

// vfs is how many virtual functions each VM is to have.
func (r Request) vfs(cfg config.Config) int {
	spec, err := jobspec.ParseIn("/any", map[string]string{"vm-per-node": "1", "vm-image": "/any", "sriov": r.SRIOV}, func(string) string { return "" }, cfg)
	if r.SRIOV == "" || err != nil {
		return 0
	}
	return len(spec.SRIOV.VFs)
}
