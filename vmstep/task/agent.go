package task

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
)

// An Agent tells a task how to find its job's agent on this node.
type Agent struct {
	Config string        // path of the configuration
	Wait   time.Duration // how long to wait for the VMs; the agent listens once they are up
}

// dial connects to the agent of this task's job on this node.
func (a Agent) dial(ctx context.Context) (*nodeagent.Client, error) {
	cfg, err := config.Load(a.Config)
	if err != nil {
		return nil, err
	}
	socket, err := nodeagent.SocketFromEnv(cfg.RunDir, os.Getenv)
	if err != nil {
		return nil, err
	}
	return nodeagent.Dial(ctx, socket)
}

// await connects to the agent, and waits if it is not there yet.
func (a Agent) await(ctx context.Context) (*nodeagent.Client, error) {
	deadline := time.Now().Add(a.Wait)
	for {
		client, err := a.dial(ctx)
		switch {
		case !notUpYet(err):
			return client, err
		case time.Now().After(deadline):
			return nil, errors.New("the VMs of this job are not running here; slurm-v-run --start starts them")
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}

// notUpYet reports whether err means that the agent does not listen yet, because its VMs
// are not ready.
func notUpYet(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ECONNREFUSED)
}
