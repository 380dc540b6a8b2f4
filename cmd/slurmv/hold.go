package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmstep"
)

// hold stays with the agent of this node until ctx ends, which is the end of the
// step: programs in the VMs have some time to end then. io.EOF means that the
// agent has left. On the job's first node it first tells all agents of each other,
// which slurm-v-run's keeper does where there is the plugin.
func hold(ctx context.Context, socket string) error {
	client, err := nodeagent.Dial(ctx, socket)
	if err != nil {
		return err
	}
	holder, err := client.Hold(ctx)
	if err != nil {
		return err
	}
	defer holder.Close()
	if holder.Node.Rank == 0 {
		if err := shareMap(ctx); err != nil {
			return err
		}
	}
	return untilEnded(ctx, holder, programTime(killWait(ctx)))
}

// untilEnded stays until the agent leaves or, after ctx has ended, the programs
// have, which get no more than the given time for it.
func untilEnded(ctx context.Context, holder *nodeagent.Holder, programs time.Duration) error {
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(programs, func() { _ = holder.Close() })
	})()
	return holder.UntilEnded(ctx)
}

// programTime is how long programs may take to end when Slurm waits that long from
// TERM to KILL: after KILL nobody is left in this step to give back the VMs.
func programTime(killWait time.Duration) time.Duration {
	const reclaim = 5 * time.Second
	return max(killWait-reclaim, time.Second)
}

// killWait asks Slurm; where there is no answer it is Slurm's default.
func killWait(ctx context.Context) time.Duration {
	text, _ := ask(ctx, "scontrol", "show", "config")
	if seconds, ok := slurm.ParseSettings(text).Seconds("KillWait"); ok {
		return time.Duration(seconds) * time.Second
	}
	return 30 * time.Second
}

// mapPatience bounds the wait for the slowest node of the job: the longest time
// that a configuration gives VMs to become ready.
const mapPatience = 2 * time.Hour

// shareMap waits until the agents of all nodes have their VMs and sends each of
// them the map.
func shareMap(ctx context.Context) error {
	job, err := thisJob(ctx)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, mapPatience)
	defer cancel()
	all, err := assemble(ctx, job)
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := vmstep.WriteFrame(&text, "all", vmstep.KindMap, all); err != nil {
		return err
	}
	return step{job: job, agent: []string{"query", "map"}, stdin: &text}.run(ctx, ignore)
}

// thisJob asks Slurm how many nodes the job has: the step's variables are about
// the step.
func thisJob(ctx context.Context) (vmJob, error) {
	name := os.Getenv("SLURM_JOB_ID")
	id, err := strconv.ParseUint(name, 10, 32)
	if err != nil {
		return vmJob{}, fmt.Errorf("SLURM_JOB_ID=%q is not a job id", name)
	}
	jobs, err := complete(ctx, []vmJob{{Name: name, ID: uint32(id)}})
	if err == nil && len(jobs) == 0 {
		err = fmt.Errorf("job %s is ending", name)
	}
	if err != nil {
		return vmJob{}, err
	}
	return jobs[0], nil
}

// assemble asks until every node has its VMs.
func assemble(ctx context.Context, job vmJob) ([]nodeagent.NodeVMs, error) {
	for {
		nodes, err := askVMs(ctx, job)
		if err != nil {
			return nil, err
		}
		assembly := vmstep.NewAssembly(job.Nodes)
		for _, n := range nodes {
			if len(n.VMs) == 0 {
				continue // not up yet
			}
			if err := assembly.Add(n); err != nil {
				return nil, fmt.Errorf("the VMs of the job do not fit together: %w", err)
			}
		}
		if assembly.Complete() {
			return assembly.Map(), nil
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return nil, errors.New("the VMs of other nodes did not come up")
		}
	}
}
