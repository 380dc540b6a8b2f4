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

// hold stays connected to the agent of this node until ctx ends, which is the end of the
// step. Programs in the VMs then have some time to end. hold returns io.EOF if the agent
// leaves first. On the job's first node, hold sends the map of all VMs to all agents, as
// slurm-v-run's keeper does on clusters with the plugin.
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

// untilEnded returns when the agent leaves. Once ctx has ended, it returns when the
// programs have ended, but after the time programs at the latest.
func untilEnded(ctx context.Context, holder *nodeagent.Hold, programs time.Duration) error {
	defer context.AfterFunc(ctx, func() {
		time.AfterFunc(programs, func() { _ = holder.Close() })
	})()
	return holder.UntilEnded(ctx)
}

// programTime is how long programs may take to end if Slurm waits killWait between TERM and
// KILL. It is shorter than killWait, because this step has to give back the VMs before KILL
// ends it.
func programTime(killWait time.Duration) time.Duration {
	const reclaim = 5 * time.Second
	return max(killWait-reclaim, time.Second)
}

// killWait asks Slurm for its KillWait. If Slurm does not answer, it is Slurm's default.
func killWait(ctx context.Context) time.Duration {
	settings, _ := slurm.User(os.Environ()).Conf(ctx)
	return settings.KillWait()
}

// mapPatience bounds the wait for the slowest node of the job. It is the longest time that
// a configuration may give VMs to become ready.
const mapPatience = 2 * time.Hour

// shareMap waits until the agents of all nodes have their VMs and sends the map to each
// agent.
func shareMap(ctx context.Context) error {
	// SLURM_NNODES and the like describe this step, so ask Slurm for the job's nodes.
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
	return jobvms.Step{Job: job, Command: vmstep.AgentQuery("map"), Stdin: &text}.Run(ctx, jobvms.Ignore)
}

// assemble asks all agents again and again until every node has its VMs.
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
				return nil, fmt.Errorf("the nodes report contradictory VMs: %w", err)
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
