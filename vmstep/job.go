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

	// What the request says, as far as it can be read here.
	VMs          int // on all nodes
	VCPUs        int // of one VM
	Devices      int // for shared memory (IVShmem)
	ReadyTimeout time.Duration
	Secret       string // which only processes of the job have; "" in one of an older plugin
}

// String is the identity of the job, as "4217.0": a requeued job is another one.
func (j Job) String() string { return fmt.Sprintf("%d.%d", j.ID, j.Restart) }

// SpecVariable is what the plugin leaves in a job that has VMs.
const SpecVariable = slurm.SpankPrefix + "SLURMV_SPEC"

// JobFromEnv finds the job by its environment. The error says what to do when
// there is none, or none with VMs.
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
	job := Job{ID: run.Job, Restart: run.Restart, Nodes: nodes}
	if spec, err := jobspec.Decode(env(SpecVariable)); err == nil {
		job.VMs, job.VCPUs, job.Devices = job.Nodes*spec.VMsPerNode, spec.VCPUs, spec.IVShmem.Devices
		job.ReadyTimeout, job.Secret = spec.ReadyTimeout, spec.Nonce
	}
	return job, nil
}
