package nodeagent

import (
	"errors"
	"fmt"
	"strconv"
)

// SocketFromEnv returns where the agent of the calling task's job listens, by the
// variables that Slurm has set: the node's name and the job. A batch job that was
// requeued has a restart count. run returns the run directory of a node.
func SocketFromEnv(run func(node string) string, env func(string) string) (string, error) {
	node := env("SLURMD_NODENAME")
	job, err := strconv.ParseUint(env("SLURM_JOB_ID"), 10, 32)
	if node == "" || err != nil {
		return "", errors.New("this command runs as a task of a Slurm job: SLURMD_NODENAME and SLURM_JOB_ID are not set")
	}
	restart := uint64(0)
	if text := env("SLURM_RESTART_COUNT"); text != "" {
		if restart, err = strconv.ParseUint(text, 10, 32); err != nil {
			return "", fmt.Errorf("SLURM_RESTART_COUNT=%q is not a number", text)
		}
	}
	return SocketPath(run(node), uint32(job), uint32(restart)), nil
}
