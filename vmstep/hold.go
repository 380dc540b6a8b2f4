package vmstep

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

// ErrKeeperGone ends a VM step whose keeper went before the VMs knew each other:
// nobody could tell them any more.
var ErrKeeperGone = errors.New("slurm-v-run's keeper was killed before the VMs were ready; run slurm-v-run again")

// Hold is the task of the VM step on one node. It says on out which VMs the node
// has, takes the map from in to the agent, says that it has arrived, and stays
// until ctx ends, which means that the step ends, or the agent gives up.
//
// The end of in means something only before the map has come.
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
	// From here on the keeper is not needed: no error in telling it.
	_ = WriteFrame(out, agent.Node.Node, KindReady, struct{}{})
	err = agent.UntilEnded(ctx)
	if ctx.Err() != nil {
		return nil // the end was wanted, however the agent took it
	}
	return agentEnd(err)
}

// agentEnd puts the loss of the agent into words.
func agentEnd(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the node agent is gone, and with it the VMs of this node; slurmv logs may say why")
	}
	return err
}

// awaitMap reads until the map has come. It goes on reading after that, for
// srun has to get rid of what comes.
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
			got.err = fmt.Errorf("the map of the VMs has come to harm: %w", err)
		}
		offer(found, got)
	}}
	_, _ = io.Copy(&frames, in)
	offer(found, mapOrError{err: ErrKeeperGone})
}

// offer sends unless an answer has been given already.
func offer(found chan<- mapOrError, m mapOrError) {
	select {
	case found <- m:
	default:
	}
}
