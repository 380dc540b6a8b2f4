package slurm

import (
	"fmt"
	"os"
	"strconv"

	"github.com/slurm-v/slurm-v/internal/program"
)

// The variables that only PrologSlurmctld and EpilogSlurmctld have. Slurm sets all of them
// after the job's control environment, whose names begin with SPANK_ (job_common_env_vars in
// slurmctld's job_mgr.c, Slurm 22.05 to 26.05), so users cannot forge them.
const (
	envHookRestarts = "SLURM_JOB_RESTART_COUNT" // not SLURM_RESTART_COUNT, which jobs have
	EnvCluster      = "SLURM_CLUSTER_NAME"
	envUID          = "SLURM_JOB_UID"
	envPartition    = "SLURM_JOB_PARTITION"
	envArrayJob     = "SLURM_ARRAY_JOB_ID"
	envArrayTask    = "SLURM_ARRAY_TASK_ID"
	envHetJob       = "SLURM_HET_JOB_ID"
	envHetOffset    = "SLURM_HET_JOB_OFFSET"
	envHetNodeList  = "SLURM_HET_JOB_NODELIST" // only of the leader: the nodes of all components
)

// HookPrefix begins the names of a job's control environment in PrologSlurmctld and
// EpilogSlurmctld. A plugin has set them with spank_job_control_setenv, or the user has
// forged them.
const HookPrefix = "SPANK_"

// A Hook is the job for which slurmctld runs PrologSlurmctld or EpilogSlurmctld.
type Hook struct {
	Cluster   string
	Record    RunID  // slurmctld's record; of a heterogeneous job, a component's
	Name      string // of the record for scontrol: 4217, or 4216_3 for a task of an array
	Job       RunID  // the run; of a heterogeneous job, the leader's for all components
	UID       uint32
	Partition string
	Nodes     []string // of the record; for the leader of a heterogeneous job, all of its nodes
}

// Leads reports whether the record stands for the whole job.
func (h Hook) Leads() bool { return h.Job == h.Record }

// HookOf reads the variables.
//
// In EpilogSlurmctld of a job that is being requeued, the restart count is already that of
// the next run: _job_requeue_op counts before deallocate_nodes starts the script (job_mgr.c).
func HookOf(env func(string) string) (h Hook, err error) {
	job, uid, restart, err := hookNumbers(env)
	if err != nil {
		return h, err
	}
	h = Hook{Cluster: env(EnvCluster), Record: RunID{job, restart}, Name: decimal(job), UID: uid, Partition: env(envPartition)}
	if h.Cluster == "" {
		return h, fmt.Errorf("%s is empty: this command runs as PrologSlurmctld or EpilogSlurmctld", EnvCluster)
	}
	if task := env(envArrayTask); digits.MatchString(task) && digits.MatchString(env(envArrayJob)) {
		h.Name = env(envArrayJob) + "_" + task
	}
	if h.Job, err = leaderOf(env, h.Record); err != nil {
		return h, err
	}
	h.Nodes, err = hookNodes(env)
	return h, err
}

func hookNumbers(env func(string) string) (job, uid, restart uint32, err error) {
	for name, target := range map[string]*uint32{EnvJobID: &job, envUID: &uid, envHookRestarts: &restart} {
		n, err := strconv.ParseUint(env(name), 10, 32)
		if err != nil {
			return 0, 0, 0, fmt.Errorf("%s=%q is not a number: this command runs as PrologSlurmctld or EpilogSlurmctld", name, env(name))
		}
		*target = uint32(n)
	}
	return job, uid, restart, nil
}

// leaderOf returns the run of the whole job. Slurm requeues all components of a
// heterogeneous job together, so their restart counts are equal.
func leaderOf(env func(string) string, own RunID) (RunID, error) {
	text := env(envHetJob)
	if text == "" {
		return own, nil
	}
	leader, err := strconv.ParseUint(text, 10, 32)
	if err != nil {
		return own, fmt.Errorf("%s=%q is not the number of a job", envHetJob, text)
	}
	return RunID{uint32(leader), own.Restart}, nil
}

func hookNodes(env func(string) string) ([]string, error) {
	list := env(envHetNodeList)
	if list == "" || env(envHetOffset) != "0" {
		list = env(envNodeList)
	}
	return Expand(list)
}

// Controller returns the client for PrologSlurmctld and EpilogSlurmctld. slurmctld gives
// them nothing of its own environment; a site's script may set SLURM_CONF before it calls
// us, and users cannot.
func Controller(bin string) Client { return Client{Bin: bin, Env: RootEnviron()} }

// RootEnviron is the environment of root's own processes that ask Slurm: of this process' variables
// it has those that say where slurm.conf is, if that is not where Slurm's commands look.
func RootEnviron() []string {
	env := []string{"PATH=" + program.Path}
	for _, name := range ConfVariables {
		if value := os.Getenv(name); value != "" {
			env = append(env, name+"="+value)
		}
	}
	return env
}
