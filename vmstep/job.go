package vmstep

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/slurm-v/slurm-v/jobspec"
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
const SpecVariable = "SLURM_SPANK_SLURMV_SPEC"

// JobFromEnv finds the job by its environment. The error says what to do when
// there is none, or none with VMs.
func JobFromEnv(env func(string) string) (Job, error) {
	id := env("SLURM_JOB_ID")
	switch {
	case id == "":
		return Job{}, errors.New("this is not a Slurm job: call slurm-v-run in a batch script that says #SBATCH --vm-per-node=N, or after salloc --vm-per-node=N")
	case env("SLURM_HET_SIZE") != "":
		return Job{}, errors.New("VMs are not available in heterogeneous jobs")
	case env(SpecVariable) == "":
		return Job{}, fmt.Errorf("job %s has no VMs: submit it with --vm-per-node=N (see sbatch --help), or use srun", id)
	}
	job, err := parseJob(id, env("SLURM_RESTART_COUNT"), firstOf(env, "SLURM_JOB_NUM_NODES", "SLURM_NNODES"))
	if err != nil {
		return Job{}, err
	}
	if spec, err := jobspec.Decode(env(SpecVariable)); err == nil {
		job.VMs, job.VCPUs, job.Devices = job.Nodes*spec.VMsPerNode, spec.VCPUs, spec.IVShmem.Devices
		job.ReadyTimeout, job.Secret = spec.ReadyTimeout, spec.Nonce
	}
	return job, nil
}

func parseJob(id, restart, nodes string) (Job, error) {
	n, err := strconv.ParseUint(id, 10, 32)
	if err != nil {
		return Job{}, fmt.Errorf("SLURM_JOB_ID=%q is not a job id", id)
	}
	r := uint64(0)
	if restart != "" {
		if r, err = strconv.ParseUint(restart, 10, 32); err != nil {
			return Job{}, fmt.Errorf("SLURM_RESTART_COUNT=%q is not a number", restart)
		}
	}
	count, err := strconv.Atoi(nodes)
	if err != nil || count < 1 {
		return Job{}, fmt.Errorf("SLURM_JOB_NUM_NODES=%q is not a number of nodes", nodes)
	}
	return Job{ID: uint32(n), Restart: uint32(r), Nodes: count}, nil
}

func firstOf(env func(string) string, names ...string) string {
	for _, name := range names {
		if value := env(name); value != "" {
			return value
		}
	}
	return ""
}

// JobOver reports whether a job in this state, a word of squeue, will not run
// steps any more. No state at all means that Slurm has forgotten the job.
func JobOver(state string) bool {
	switch strings.TrimSpace(state) {
	case "RUNNING", "SUSPENDED", "CONFIGURING", "RESIZING", "SIGNALING", "STOPPED":
		return false
	}
	return true
}
