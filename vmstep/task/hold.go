package task

import (
	"context"
	"errors"
	"os"
	"os/signal"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/vmstep"
)

// errStepEnds is the cause if SIGTERM ends the hold before the VMs were ready.
var errStepEnds = errors.New("the VM step was ended before the VMs were ready")

// Hold is the task of the VM step on this node. It tells slurm-v-run's keeper which VMs the
// node has, passes the map of all VMs to the agent, and stays until the step ends. It
// ignores every signal but TERM: the VMs must survive signals that are meant for programs.
func (a Agent) Hold() error {
	ctx := untilTerm()
	client, err := a.dial(ctx)
	if err != nil {
		return err
	}
	holder, err := client.Hold(ctx)
	if err != nil {
		return err
	}
	return vmstep.Hold(ctx, holder, os.Stdin, os.Stdout)
}

// untilTerm returns a context that ends with SIGTERM. It ignores all other signals that can
// be caught, also SIGPIPE and those that would stop the process.
func untilTerm() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	// Nobody reads swallowed. That is fine: Notify does not wait for a full channel.
	swallowed, term := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(swallowed)
	signal.Notify(term, unix.SIGTERM)
	go func() {
		<-term
		cancel(errStepEnds)
	}()
	return ctx
}
