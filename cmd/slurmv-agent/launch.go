package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/harden"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmlaunch"
	"github.com/slurm-v/slurm-v/vmlaunch/entitle"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
	"github.com/slurm-v/slurm-v/vmlaunch/requeue"
	"github.com/slurm-v/slurm-v/vmstep"
)

func newLaunch() *cobra.Command {
	var path string
	var task bool
	c := &cobra.Command{
		Use:   "launch",
		Short: "Launch the VMs of a job on this node and look after them",
		Long: `Launch the VMs of a job on this node and look after them until the step ends.

Slurm's plugin starts it as root in the VM step. SLURMV_ variables have what Slurm says
about the job. File descriptor 3 carries the outcome back, one line each:

    say TEXT     shown to the user as it is
    error TEXT   why the launch failed
    ready        the VMs are up; the agent lives on

With --task a user starts it with sudo, see slurmv launch.`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			if task {
				return runTaskLaunch(c.Context())
			}
			return runLaunch(c.Context(), path)
		},
	}
	c.Flags().StringVar(&path, "config", config.Path, "read the configuration from `file`")
	c.Flags().BoolVar(&task, "task", false, "launch for the user who runs this with sudo in a step of their job; --config is ignored")
	return c
}

func runLaunch(ctx context.Context, path string) error {
	status := newStatus(3)
	node, err := launch(ctx, path, status)
	if err != nil {
		status.failed(err)
		return err
	}
	err = node.Serve(ctx, func() {
		status.line("ready", "")
		status.close()
	})
	if err != nil {
		status.failed(fmt.Errorf("node %s: %w", os.Getenv("SLURMV_NODE"), err))
	}
	return err
}

func launch(ctx context.Context, path string, status *status) (*vmlaunch.VMs, error) {
	if err := harden.Process(harden.PluginVariables); err != nil {
		return nil, fmt.Errorf("node %s: %w", os.Getenv("SLURMV_NODE"), err)
	}
	if err := entitle.CheckOwnPlace("/proc", os.Getenv); err != nil {
		return nil, fmt.Errorf("node %s: %w", os.Getenv("SLURMV_NODE"), err)
	}
	job, err := entitle.FromPlugin(os.Getenv)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", os.Getenv("SLURMV_NODE"), err)
	}
	cfg, err := config.Load(path)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", job.Node, err)
	}
	return launchForPlugin(ctx, cfg, job, status)
}

func launchForPlugin(ctx context.Context, cfg config.Config, job plan.Job, status *status) (*vmlaunch.VMs, error) {
	_ = vmstep.WriteFrame(frameWriter{status}, job.Node, vmstep.KindBackend, vmstep.Backend{Type: string(cfg.Backend.Type)})
	client := administrator(cfg)
	if err := entitle.AddVFs(ctx, client, cfg, &job); err != nil {
		return nil, fmt.Errorf("node %s: %w", job.Node, err)
	}
	return launchJob(ctx, client, cfg, job, status)
}

func launchJob(ctx context.Context, client slurm.Client, cfg config.Config, job plan.Job, status *status) (*vmlaunch.VMs, error) {
	tags, err := entitle.SetUpTags(ctx, client, cfg, &job)
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", job.Node, err)
	}
	for _, warning := range tags.Warnings {
		status.line("say", fmt.Sprintf("slurm-v: node %s: %s", job.Node, warning))
	}
	frames := frameWriter{status}
	vms, err := vmlaunch.Launch(ctx, cfg, job, tags, entitle.Asks(client, job.ID.Job), func(p vmstep.Progress) {
		_ = vmstep.WriteFrame(frames, job.Node, vmstep.KindProgress, p)
	})
	if err != nil {
		return nil, fmt.Errorf("node %s: %w", job.Node, requeue.Elsewhere(ctx, client, cfg, job, err))
	}
	return vms, nil
}

// A status is the pipe to the plugin. The plugin may have been killed with its step. Writes
// to the pipe then fail, which must not end the agent.
type status struct{ pipe *os.File }

func newStatus(fd uintptr) *status {
	unix.CloseOnExec(int(fd))
	return &status{os.NewFile(fd, "status pipe")}
}

// line sends a word and a text as one line.
func (s *status) line(word, text string) {
	fmt.Fprintln(s.pipe, strings.TrimSpace(word+" "+oneLine(text)))
}

func oneLine(text string) string { return strings.Join(strings.Fields(text), " ") }

// failed tells the keeper, and Slurm's log, why there are no VMs. The keeper gets the
// sentence in a frame, so it is whole and not mixed with Slurm's messages.
func (s *status) failed(err error) {
	f := vmstep.Failure{Error: oneLine(err.Error()), Elsewhere: errors.Is(err, vmlaunch.ErrAlreadyRunning)}
	if node := os.Getenv("SLURMV_NODE"); node != "" {
		_ = vmstep.WriteFrame(frameWriter{s}, node, vmstep.KindFailed, f)
	}
	s.line("error", f.Error)
}

func (s *status) close() { s.pipe.Close() }

// A frameWriter passes frames to the step's standard error, where the keeper reads them.
type frameWriter struct{ status *status }

func (f frameWriter) Write(p []byte) (int, error) {
	f.status.line("say", string(p))
	return len(p), nil
}
