package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/slurm-v/slurm-v/nodeagent"
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
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var refused error
	out := &vmstep.Frames{Message: func(m vmstep.Message) {
		if err := refusal(m); err != nil && refused == nil {
			refused = err
		} else if err := take(m); err != nil {
			cancel(err)
		}
	}}
	var words bytes.Buffer
	c := s.command(ctx)
	c.Stdout, c.Stderr = out, &words
	err := c.Run()
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, context.DeadlineExceeded):
		return fmt.Errorf("job %s: its nodes did not answer within %s", s.job.Name, patience)
	case cause != nil:
		return fmt.Errorf("job %s: %w", s.job.Name, cause)
	case refused != nil:
		return fmt.Errorf("job %s: %w", s.job.Name, refused)
	case err != nil:
		return fmt.Errorf("ask the nodes of job %s: %w", s.job.Name, stepError(err, words.String()))
	}
	return nil
}

// command ends gently: srun then ends the tasks on the nodes, too. It also ends
// when slurmv is killed.
func (s step) command(ctx context.Context) *exec.Cmd {
	args := stepArgs(s.job, s.node, s.agent)
	if s.stdin == nil {
		args = append([]string{"--input=none"}, args...)
	}
	c := exec.CommandContext(ctx, "srun", args...)
	c.Env = stepEnv(os.Environ(), s.job)
	c.Dir = "/"
	c.Stdin = s.stdin
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = 5 * time.Second
	c.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
	return c
}

// refusal is the sentence in which an agent refuses.
func refusal(m vmstep.Message) error {
	if m.Kind != vmstep.KindFailed {
		return nil
	}
	var f vmstep.Failure
	if err := m.Decode(&f); err != nil {
		return err
	}
	return fmt.Errorf("node %s: %s", m.Node, f.Error)
}

// stepError prefers srun's first sentence to its exit status.
func stepError(err error, words string) error {
	if errors.Is(err, exec.ErrNotFound) {
		return slurmError("srun", err)
	}
	for line := range strings.Lines(words) {
		if line = strings.TrimSpace(line); line != "" {
			return errors.New(line)
		}
	}
	return fmt.Errorf("srun: %w", err)
}
