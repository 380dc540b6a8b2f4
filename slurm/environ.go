package slurm

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
)

// The variables in which Slurm describes a process's job, step and task.
const (
	EnvJobID    = "SLURM_JOB_ID"
	EnvRestarts = "SLURM_RESTART_COUNT" // absent or empty if the job was not requeued
	EnvJobName  = "SLURM_JOB_NAME"      // in a step, the step's name
	EnvHetSize  = "SLURM_HET_SIZE"      // only in a heterogeneous job
	EnvStepID   = "SLURM_STEP_ID"       // in a step, its number in the job
	EnvProcID   = "SLURM_PROCID"        // the task's rank in its step
	EnvNodeID   = "SLURM_NODEID"        // the node's number among the nodes of the step
	EnvLocalID  = "SLURM_LOCALID"       // the task's number on its node
	EnvNodeName = "SLURMD_NODENAME"

	envOldJobID     = "SLURM_JOBID"
	envNodeList     = "SLURM_JOB_NODELIST"
	envNodes        = "SLURM_JOB_NUM_NODES"
	envOldNodes     = "SLURM_NNODES" // under salloc
	envStepTasks    = "SLURM_STEP_NUM_TASKS"
	envTasksPerNode = "SLURM_STEP_TASKS_PER_NODE"
	envRanksHere    = "SLURM_GTIDS"
	envSrunHost     = "SLURM_SRUN_COMM_HOST"
	envSrunPort     = "SLURM_SRUN_COMM_PORT"
	timeFormat      = "SLURM_TIME_FORMAT"
)

// The prefixes of variables in which Slurm keeps data of SPANK plugins.
const (
	SpankPrefix  = "SLURM_SPANK_"
	OptionPrefix = "_SLURM_SPANK_OPTION_"
)

// ConfVariables say where Slurm's configuration is.
var ConfVariables = []string{"SLURM_CONF", "SLURM_CONF_SERVER"}

// jobVariables say which job a process belongs to. The restart count is part of a job's
// identity, too.
var jobVariables = []string{EnvJobID, envOldJobID, EnvRestarts}

// NamesJob reports whether the variable says which job a process belongs to.
func NamesJob(name string) bool { return slices.Contains(jobVariables, name) }

// Identifies reports whether the variable says which job this is, or how to reach Slurm.
func Identifies(name string) bool {
	return NamesJob(name) || slices.Contains(ConfVariables, name) ||
		slices.Contains([]string{"SLURM_CLUSTER_NAME", "SLURM_WORKING_CLUSTER", "SLURM_JWT"}, name)
}

// OfAStep reports whether the variable describes a step or job, or sets an option of
// srun.
func OfAStep(name string) bool {
	return hasPrefix(name, "SLURM", "_SLURM_", "SRUN_", "SBATCH_", "SALLOC_", "PMI_", "PMI2_", "PMIX_")
}

func hasPrefix(name string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(name, prefix) })
}

// OfATask reports whether the variable would make a program believe that it is a Slurm
// task.
func OfATask(name string) bool {
	return hasPrefix(name, "SLURM_", "SLURMD_", "PMI_", "PMI2_", "PMIX_")
}

// OfAPlugin reports whether a SPANK plugin, ours or another, has set the variable.
func OfAPlugin(name string) bool {
	return hasPrefix(name, SpankPrefix, "_"+SpankPrefix)
}

// hostVariables have no meaning outside of the node on which Slurm has set them.
var hostVariables = append([]string{
	"SLURM_JWT", "SLURM_TASK_PID", envSrunHost, envSrunPort, "SLURM_STEP_LAUNCHER_PORT",
}, ConfVariables...)

// OfTheHost reports whether the variable has no meaning outside of its node.
func OfTheHost(name string) bool { return slices.Contains(hostVariables, name) }

// JobOf returns the run of the job to which a process with these variables belongs.
func JobOf(env func(string) string) (id RunID, err error) {
	job, err := strconv.ParseUint(env(EnvJobID), 10, 32)
	if err != nil {
		return RunID{}, fmt.Errorf("%s=%q is not a job id", EnvJobID, env(EnvJobID))
	}
	restart := uint64(0)
	if text := env(EnvRestarts); text != "" {
		if restart, err = strconv.ParseUint(text, 10, 32); err != nil {
			return RunID{}, fmt.Errorf("%s=%q is not a number", EnvRestarts, text)
		}
	}
	return RunID{uint32(job), uint32(restart)}, nil
}

// ThisJob returns the name by which Slurm's commands find only the job of a process with these
// variables; "" outside of jobs. The last task of an array has the array's own number, under
// which they list all tasks.
func ThisJob(env func(string) string) string {
	job, task := env(EnvJobID), env(envArrayTask)
	if job != "" && task != "" && env(envArrayJob) == job {
		return job + "_" + task
	}
	return job
}

// NodesOf returns how many nodes the job has.
func NodesOf(env func(string) string) (int, error) {
	text := env(envNodes)
	if text == "" {
		text = env(envOldNodes)
	}
	count, err := strconv.Atoi(text)
	if err != nil || count < 1 {
		return 0, fmt.Errorf("%s=%q is not a number of nodes", envNodes, text)
	}
	return count, nil
}

// FirstNodeOf returns the first of the job's nodes.
func FirstNodeOf(env func(string) string) (string, error) {
	first := firstNode(env(envNodeList))
	if first == "" {
		return "", fmt.Errorf("%s=%q is no list of nodes", envNodeList, env(envNodeList))
	}
	return first, nil
}

// firstNode returns the first name of a list such as n[1-4,7],m2; "" if it is none.
func firstNode(list string) (name string) {
	for list != "" {
		plain, rest, brackets := strings.Cut(list, "[")
		if before, _, ends := strings.Cut(plain, ","); ends || !brackets {
			return name + before
		}
		numbers, after, closed := strings.Cut(rest, "]")
		end := strings.IndexAny(numbers, "-,")
		if end < 0 {
			end = len(numbers)
		}
		if !closed || end == 0 {
			return ""
		}
		name, list = name+plain+numbers[:end], after
	}
	return name
}

// SrunAddress returns the address at which the srun of this step listens for messages of
// Slurm; "" outside of steps.
func SrunAddress(env func(string) string) string {
	host, port := env(envSrunHost), env(envSrunPort)
	if host == "" || port == "" {
		return ""
	}
	return net.JoinHostPort(host, port)
}

// A Task is a task's place in its step.
type Task struct {
	Rank, Ranks         int // in the step
	LocalID, LocalTasks int // on the node
}

// TaskOf returns the place of the task that has these variables.
func TaskOf(env func(string) string) (Task, error) {
	var t Task
	var node int
	for name, target := range map[string]*int{EnvProcID: &t.Rank, envStepTasks: &t.Ranks, EnvLocalID: &t.LocalID, EnvNodeID: &node} {
		n, err := strconv.Atoi(env(name))
		if err != nil || n < 0 {
			return t, fmt.Errorf("%s=%q: this command runs as a task of a Slurm step", name, env(name))
		}
		*target = n
	}
	tasks, err := tasksOnNode(env(envTasksPerNode), node)
	if err == nil && t.LocalID >= tasks {
		err = fmt.Errorf("task %d of %d tasks on this node cannot be", t.LocalID, tasks)
	}
	t.LocalTasks = tasks
	return t, err
}

// tasksOnNode reads one node's number from a list like "2(x3),1".
func tasksOnNode(list string, node int) (int, error) {
	for entry := range strings.SplitSeq(list, ",") {
		tasks, nodes, err := repeated(entry)
		if err != nil {
			return 0, fmt.Errorf("%s=%q: %w", envTasksPerNode, list, err)
		}
		if node < nodes {
			return tasks, nil
		}
		node -= nodes
	}
	return 0, fmt.Errorf("%s=%q names too few nodes", envTasksPerNode, list)
}

// MostTasksOnNode returns how many tasks of the step are on the node that has the most.
func MostTasksOnNode(env func(string) string) (int, error) {
	most := 0
	for entry := range strings.SplitSeq(env(envTasksPerNode), ",") {
		tasks, _, err := repeated(entry)
		if err != nil {
			return 0, fmt.Errorf("%s=%q: %w", envTasksPerNode, env(envTasksPerNode), err)
		}
		most = max(most, tasks)
	}
	return most, nil
}

// repeated reads "2(x3)" or "2".
func repeated(entry string) (tasks, nodes int, err error) {
	text, times, many := strings.Cut(entry, "(x")
	if tasks, err = strconv.Atoi(text); err != nil {
		return 0, 0, err
	}
	if !many {
		return tasks, 1, nil
	}
	nodes, err = strconv.Atoi(strings.TrimSuffix(times, ")"))
	return tasks, nodes, err
}

// RanksHere returns the ranks of the step's tasks on this node.
func RanksHere(env func(string) string) ([]int, error) {
	var ranks []int
	list := env(envRanksHere)
	for word := range strings.SplitSeq(list, ",") {
		rank, err := strconv.ParseUint(word, 10, 31)
		if err != nil {
			return nil, fmt.Errorf("%q is not a list of ranks: %w", list, err)
		}
		ranks = append(ranks, int(rank))
	}
	return ranks, nil
}

// NodeName returns this node's name in Slurm: given, or else the name in the variables of
// a job on it, or else the host's. The host's is only a guess, as nodes may share a host.
func NodeName(given string) (string, error) {
	for _, name := range []string{given, os.Getenv(EnvNodeName)} {
		if name != "" {
			return name, nil
		}
	}
	host, err := HostName()
	if err != nil {
		return "", fmt.Errorf("find the name of this node: %w", err)
	}
	return host, nil
}

// HostName returns the host's name without its domain, as node names have no domain.
func HostName() (string, error) {
	host, err := os.Hostname()
	host, _, _ = strings.Cut(host, ".")
	return host, err
}
