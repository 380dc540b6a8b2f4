package vmstep

import (
	"fmt"
	"strconv"
	"strings"
)

// A Place is a task's place in its step, by the variables that Slurm sets.
type Place struct {
	Rank, Ranks         int // in the step
	LocalID, LocalTasks int // on the node
}

// PlaceFromEnv reads the place of this task.
func PlaceFromEnv(env func(string) string) (Place, error) {
	var p Place
	var node int
	for name, target := range map[string]*int{
		"SLURM_PROCID": &p.Rank, "SLURM_STEP_NUM_TASKS": &p.Ranks, "SLURM_LOCALID": &p.LocalID, "SLURM_NODEID": &node,
	} {
		n, err := strconv.Atoi(env(name))
		if err != nil || n < 0 {
			return p, fmt.Errorf("%s=%q: this command runs as a task of a Slurm step", name, env(name))
		}
		*target = n
	}
	tasks, err := tasksOnNode(env("SLURM_STEP_TASKS_PER_NODE"), node)
	if err == nil && p.LocalID >= tasks {
		err = fmt.Errorf("task %d of %d tasks on this node cannot be", p.LocalID, tasks)
	}
	p.LocalTasks = tasks
	return p, err
}

// tasksOnNode reads the number for one node out of a list like "2(x3),1".
func tasksOnNode(list string, node int) (int, error) {
	for _, entry := range strings.Split(list, ",") {
		tasks, nodes, err := repeated(entry)
		if err != nil {
			return 0, fmt.Errorf("SLURM_STEP_TASKS_PER_NODE=%q: %w", list, err)
		}
		if node < nodes {
			return tasks, nil
		}
		node -= nodes
	}
	return 0, fmt.Errorf("SLURM_STEP_TASKS_PER_NODE=%q names too few nodes", list)
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
