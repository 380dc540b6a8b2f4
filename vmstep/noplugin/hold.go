package noplugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/slurm-v/slurm-v/internal/jobvms"
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
func untilEnded(ctx context.Context, holder *nodeagent.Hold, programs time.Duration) error {
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
	settings, _ := slurm.User(os.Environ()).Conf(ctx)
	return settings.KillWait()
}

// mapPatience bounds the wait for the slowest node of the job: the longest time
// that a configuration gives VMs to become ready.
const mapPatience = 2 * time.Hour

// shareMap waits until the agents of all nodes have their VMs and sends each of
// them the map.
func shareMap(ctx context.Context) error {
	// The step's variables are about the step; how many nodes the job has Slurm says.
	job, err := slurm.User(os.Environ()).RunningJob(ctx, os.Getenv(slurm.EnvJobID))
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
	return jobvms.Step{Job: job, Agent: []string{"query", "map"}, Stdin: &text}.Run(ctx, jobvms.Ignore)
}

// assemble asks until every node has its VMs.
func assemble(ctx context.Context, job slurm.StepJob) ([]nodeagent.NodeVMs, error) {
	for {
		nodes, err := jobvms.Ask(ctx, job)
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
