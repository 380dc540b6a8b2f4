package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/vmstep"
)

// patience bounds the asking of a job's agents: a node that hangs must not hang
// slurmv.
const patience = 30 * time.Second

// A jobVMs is a job with what its agents say about it.
type jobVMs struct {
	vmJob
	nodes []nodeagent.NodeVMs // ordered by rank
}

// askAll asks the agents of several jobs, some jobs at once. A job that cannot be
// asked does not keep the others from being shown.
func askAll(ctx context.Context, jobs []vmJob) ([]jobVMs, error) {
	all := make([]jobVMs, len(jobs))
	errs := make([]error, len(jobs))
	var group errgroup.Group
	group.SetLimit(8)
	for i, job := range jobs {
		group.Go(func() error {
			all[i].vmJob = job
			all[i].nodes, errs[i] = askVMs(ctx, job)
			return nil
		})
	}
	_ = group.Wait()
	return all, errors.Join(errs...)
}

// askVMs asks every node of a job for its VMs.
func askVMs(ctx context.Context, job vmJob) ([]nodeagent.NodeVMs, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var nodes []nodeagent.NodeVMs
	err := step{job: job, agent: []string{"query", "ps"}}.run(ctx, func(m vmstep.Message) error {
		var n nodeagent.NodeVMs
		if m.Kind == vmstep.KindVMs {
			if err := m.Decode(&n); err != nil {
				return err
			}
			nodes = append(nodes, n)
		}
		return nil
	})
	slices.SortFunc(nodes, func(a, b nodeagent.NodeVMs) int { return a.Rank - b.Rank })
	return nodes, err
}

// findVM returns the job and node on which a target runs.
func findVM(ctx context.Context, t target) (vmJob, string, error) {
	job, err := findJob(ctx, t.job)
	if err != nil {
		return vmJob{}, "", err
	}
	nodes, err := askVMs(ctx, job)
	if err != nil {
		return vmJob{}, "", err
	}
	node, err := nodeOf(t, nodes)
	return job, node, err
}

// nodeOf finds the node of a VM. One that is not there may be on a node which is
// not ready yet.
func nodeOf(t target, nodes []nodeagent.NodeVMs) (string, error) {
	var names []string
	starting := len(nodes) == 0
	for _, n := range nodes {
		starting = starting || len(n.VMs) == 0
		for _, vm := range n.VMs {
			if vm.Number == t.vm {
				return n.Node, nil
			}
			names = append(names, vm.Name)
		}
	}
	if starting {
		return "", fmt.Errorf("%s is not up yet; slurmv ps %s shows which VMs are", t, t.job)
	}
	return "", fmt.Errorf("job %s has no vm%d; it has %s to %s", t.job, t.vm, names[0], names[len(names)-1])
}

// A step is a Slurm step of a job in which its agents are asked something.
type step struct {
	job   vmJob
	node  string    // one node, or "" for all
	agent []string  // the command line of the agent there
	stdin io.Reader // nil for none
}

// run gives every message of the agents to take. It returns the first refusal of
// an agent, in the agent's words, or else what srun said. One node that refuses
// does not keep the others from answering.
func (s step) run(ctx context.Context, take func(vmstep.Message) error) error {
	err := vmstep.Query(ctx, s.command, take)
	var failed *vmstep.StepError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return fmt.Errorf("job %s: its nodes did not answer within %s", s.job.Name, patience)
	case errors.Is(err, exec.ErrNotFound):
		return fmt.Errorf("ask the nodes of job %s: %w", s.job.Name, slurmError("srun", err))
	case errors.As(err, &failed):
		return fmt.Errorf("ask the nodes of job %s: %w", s.job.Name, err)
	case err != nil:
		return fmt.Errorf("job %s: %w", s.job.Name, err)
	}
	return nil
}

func (s step) command(ctx context.Context) *exec.Cmd {
	args := stepArgs(s.job, s.node, s.agent)
	if s.stdin == nil {
		args = append([]string{"--input=none"}, args...)
	}
	c := vmstep.StepProcess(ctx, append([]string{"srun"}, args...), stepEnv(os.Environ(), s.job))
	c.Stdin = s.stdin
	return c
}
