package vmstep

import (
	"errors"
	"fmt"
	"time"

	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/slurm"
)

// A Job is the Slurm job that this process runs in.
type Job struct {
	ID, Restart uint32
	Nodes       int
	First       string // the job's first node, where its first VM is

	// The user's request, as far as this process can read it.
	VMs          int // on all nodes
	VCPUs        int // of one VM
	Devices      int // for shared memory (IVShmem)
	ReadyTimeout time.Duration
	Secret       string // known only to processes of the job; "" if an older plugin submitted the job
}

// String identifies the job, as in "4217.0". A requeued job is another job.
func (j Job) String() string { return fmt.Sprintf("%d.%d", j.ID, j.Restart) }

// SpecVariable is the variable that the plugin sets in every job with VMs.
const SpecVariable = slurm.SpankPrefix + "SLURMV_SPEC"

// JobFromEnv reads the job from its environment. If there is no job, or it has no VMs, the
// error says what to do.
func JobFromEnv(env func(string) string) (Job, error) {
	id := env(slurm.EnvJobID)
	switch {
	case id == "":
		return Job{}, errors.New("this is not a Slurm job: call slurm-v-run in a batch script that says #SBATCH --vm-per-node=N, or after salloc --vm-per-node=N")
	case env(slurm.EnvHetSize) != "":
		return Job{}, errors.New("VMs are not available in heterogeneous jobs")
	case env(SpecVariable) == "":
		return Job{}, fmt.Errorf("job %s has no VMs: submit it with --vm-per-node=N (see sbatch --help), or use srun", id)
	}
	run, err := slurm.JobOf(env)
	if err != nil {
		return Job{}, err
	}
	nodes, err := slurm.NodesOf(env)
	if err != nil {
		return Job{}, err
	}
	first, err := slurm.FirstNodeOf(env)
	if err != nil {
		return Job{}, err
	}
	job := Job{ID: run.Job, Restart: run.Restart, Nodes: nodes, First: first}
	if spec, err := jobspec.Decode(env(SpecVariable)); err == nil {
		job.VMs, job.VCPUs, job.Devices = job.Nodes*spec.VMsPerNode, spec.VCPUs, spec.IVShmem.Devices
		job.ReadyTimeout, job.Secret = spec.ReadyTimeout, spec.Nonce
	}
	return job, nil
}
