package noplugin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/jobvms"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmstep"
)

// launchGrace is how long AwaitLaunch waits without seeing slurmv launch, which users start
// in the background beside this step.
const launchGrace = 5 * time.Second

// AwaitLaunch returns when the agent of this node listens. It returns an error if no step
// is starting the agent any more. path is the configuration file.
func AwaitLaunch(ctx context.Context, path string, wait time.Duration) error {
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	socket, err := nodeagent.SocketFromEnv(cfg.RunDir, os.Getenv)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, wait, fmt.Errorf("the VMs did not come up within %s", wait))
	defer cancel()
	for seen := time.Now(); ; {
		client, err := nodeagent.Dial(ctx, socket)
		switch {
		case err == nil:
			return client.Close()
		case errors.Is(err, nodeagent.ErrForeign):
			return err
		}
		jobs, err := jobvms.FindAll(ctx, slurm.Which{Jobs: []string{slurm.ThisJob(os.Getenv)}})
		switch {
		case err != nil || len(jobs) > 0:
			seen = time.Now()
		case time.Since(seen) > launchGrace:
			return fmt.Errorf("the VMs are not there and no step %s is starting them; what slurmv launch has said is in the job's output", vmstep.StepName)
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
