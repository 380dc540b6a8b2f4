package nodeagent

import (
	"fmt"

	"github.com/slurm-v/slurm-v/slurm"
)

// SocketFromEnv returns the socket of the agent of the calling task's job. It takes the
// node's name, the job and its restart count from the variables that Slurm has set. run
// returns the run directory of a node.
func SocketFromEnv(run func(node string) string, env func(string) string) (string, error) {
	node, job := env(slurm.EnvNodeName), env(slurm.EnvJobID)
	if node == "" || job == "" {
		return "", fmt.Errorf("this command runs as a task of a Slurm job: %s and %s are not set", slurm.EnvNodeName, slurm.EnvJobID)
	}
	id, err := slurm.JobOf(env)
	if err != nil {
		return "", err
	}
	return SocketPath(run(node), id.Job, id.Restart), nil
}
