package vmstep

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

// errKeeperGone ends a VM step whose keeper was killed before the VMs had the map: nobody
// could send the map any more.
var errKeeperGone = errors.New("slurm-v-run's keeper was killed before the VMs were ready; run slurm-v-run again")

// Hold is the task of the VM step on one node. It writes the node's VMs to out, passes the
// map from in to the agent, and reports that the VMs have it. It then stays until ctx ends,
// which is the end of the step, or until the agent ends.
//
// The end of in is an error only before the map has come.
func Hold(ctx context.Context, agent *nodeagent.Hold, in io.Reader, out io.Writer) error {
	defer agent.Close()
	err := hold(ctx, agent, in, out)
	if err != nil && ctx.Err() == nil {
		// The keeper may be gone; then nobody needs this line.
		_ = WriteFrame(out, agent.Node.Node, KindFailed, Failure{Error: err.Error()})
	}
	return err
}

func hold(ctx context.Context, agent *nodeagent.Hold, in io.Reader, out io.Writer) error {
	if err := WriteFrame(out, agent.Node.Node, KindVMs, agent.Node); err != nil {
		return err
	}
	all, err := awaitMap(ctx, in)
	if err != nil {
		return err
	}
	if err := agent.SendMap(ctx, all); err != nil {
		return agentEnd(err)
	}
	// From here on the VMs do not need the keeper, so it does not matter whether this line
	// arrives.
	_ = WriteFrame(out, agent.Node.Node, KindReady, struct{}{})
	err = agent.UntilEnded(ctx)
	if ctx.Err() != nil {
		return nil // the step is ending, so the agent's error does not matter
	}
	return agentEnd(err)
}

// agentEnd turns the end of the agent's connection into an error that users understand.
func agentEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the node agent is gone, and with it the VMs of this node; slurmv logs may say why")
	}
	return err
}

// awaitMap returns once the map has come. Reading goes on in the background, because srun
// must be able to deliver later input.
func awaitMap(ctx context.Context, in io.Reader) ([]nodeagent.NodeVMs, error) {
	maps := make(chan mapOrError, 1)
	go readMap(in, maps)
	select {
	case m := <-maps:
		return m.all, m.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

type mapOrError struct {
	all []nodeagent.NodeVMs
	err error
}

func readMap(in io.Reader, found chan<- mapOrError) {
	frames := Frames{Message: func(m Message) {
		if m.Kind != KindMap {
			return
		}
		var got mapOrError
		if err := m.Decode(&got.all); err != nil {
			got.err = fmt.Errorf("the map of the VMs arrived damaged: %w", err)
		}
		offer(found, got)
	}}
	_, _ = io.Copy(&frames, in)
	offer(found, mapOrError{err: errKeeperGone})
}

// offer sends m unless an answer was sent before.
func offer(found chan<- mapOrError, m mapOrError) {
	select {
	case found <- m:
	default:
	}
}
