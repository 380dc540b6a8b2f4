package jobvms

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/slurm-v/slurm-v/internal/concurrently"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmstep"
)

// patience bounds a question to a job's agents: a node that hangs must not hang slurmv. The question is
// a step of the job, which a node whose CPUs are all busy takes half a minute to start.
const patience = time.Minute

// A Job is a running job with what its agents say about it.
type Job struct {
	slurm.StepJob
	Nodes []nodeagent.NodeVMs // ordered by rank
}

// AskAll asks the agents of several jobs, several jobs at once. If a job cannot be asked,
// the others are still shown. It omits jobs that end, or are requeued, before they answer.
func AskAll(ctx context.Context, jobs []slurm.StepJob) ([]Job, error) {
	all, errs := askEach(ctx, jobs)
	if errors.Join(errs...) == nil {
		return all, nil
	}
	still, err := FindAll(ctx, slurm.Which{Jobs: numbers(jobs)})
	if err != nil {
		return all, errors.Join(errs...)
	}
	var there []Job
	for i, job := range all {
		if errs[i] != nil && !slices.ContainsFunc(still, job.is) {
			errs[i] = nil
			continue
		}
		there = append(there, job)
	}
	return there, errors.Join(errs...)
}

// is reports whether other is this job, and not the job that it is after being requeued.
func (j Job) is(other slurm.StepJob) bool { return other.ID == j.ID && other.Restart == j.Restart }

func numbers(jobs []slurm.StepJob) (ids []string) {
	for _, job := range jobs {
		ids = append(ids, strconv.FormatUint(uint64(job.ID), 10))
	}
	return ids
}

// askEach returns for each job what its agents say, or an error.
func askEach(ctx context.Context, jobs []slurm.StepJob) ([]Job, []error) {
	all := make([]Job, len(jobs))
	asked := make([]*Job, len(jobs))
	for i, job := range jobs {
		all[i].StepJob, asked[i] = job, &all[i]
	}
	return all, concurrently.Each(asked, 8, func(j *Job) (err error) {
		j.Nodes, err = Ask(ctx, j.StepJob)
		return err
	})
}

// Ask asks every node of a job for its VMs.
func Ask(ctx context.Context, job slurm.StepJob) ([]nodeagent.NodeVMs, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	var nodes []nodeagent.NodeVMs
	err := Step{Job: job, Command: vmstep.AgentQuery("ps")}.Run(ctx, func(m vmstep.Message) error {
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

// AskNamed asks the agents of the job of that name, as [Find] understands it.
func AskNamed(ctx context.Context, name string) ([]nodeagent.NodeVMs, error) {
	job, err := Find(ctx, name)
	if err != nil {
		return nil, err
	}
	return Ask(ctx, job)
}

// FindVM returns the job and node of a target.
func FindVM(ctx context.Context, t Target) (slurm.StepJob, string, error) {
	job, err := Find(ctx, t.Job)
	if err != nil {
		return slurm.StepJob{}, "", err
	}
	nodes, err := Ask(ctx, job)
	if err != nil {
		return slurm.StepJob{}, "", err
	}
	node, err := nodeOf(t, nodes)
	return job, node, err
}

// nodeOf finds the node of a VM. A VM that no node lists may be on a node that is not
// ready yet.
func nodeOf(t Target, nodes []nodeagent.NodeVMs) (string, error) {
	var names []string
	starting := len(nodes) == 0
	for _, n := range nodes {
		starting = starting || len(n.VMs) == 0
		for _, vm := range n.VMs {
			if vm.Number == t.VM {
				return n.Node, nil
			}
			names = append(names, vm.Name)
		}
	}
	if starting {
		return "", fmt.Errorf("%s is not up yet; slurmv ps %s shows which VMs are", t, t.Job)
	}
	return "", fmt.Errorf("job %s has no vm%d; it has %s to %s", t.Job, t.VM, names[0], names[len(names)-1])
}

// FindAll asks Slurm for the running jobs with VMs. A named job without VMs is not an
// error.
func FindAll(ctx context.Context, w slurm.Which) ([]slurm.StepJob, error) {
	return slurm.User(os.Environ()).StepJobs(ctx, w, vmstep.StepName)
}

// Find returns the running job with VMs that has this name.
func Find(ctx context.Context, name string) (slurm.StepJob, error) {
	jobs, err := FindAll(ctx, slurm.Which{Jobs: []string{name}})
	switch {
	case err != nil:
		return slurm.StepJob{}, err
	case len(jobs) == 0:
		return slurm.StepJob{}, fmt.Errorf("job %s has no running VMs; slurmv ps -a lists the jobs that have, slurmv logs %s shows what is left of it", name, name)
	case len(jobs) > 1:
		return slurm.StepJob{}, fmt.Errorf("job %s is an array, and %d of its tasks have VMs: name one, such as %s", name, len(jobs), jobs[0].Name)
	}
	return jobs[0], nil
}
