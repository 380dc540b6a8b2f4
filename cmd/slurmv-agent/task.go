package main

import (
	"context"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/harden"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmlaunch"
	"github.com/slurm-v/slurm-v/vmlaunch/entitle"
)

// Without the plugin, users start launch and reclaim with sudo, inside a step of their job
// (slurmv launch, slurmv reclaim). Arguments and variables of the user never decide which
// resources the job has; see [entitle.FromSudo]. Only the request for VMs comes from the
// user, on standard input.

// runTaskLaunch is launch for a user without the plugin. It reports the outcome on standard
// output.
func runTaskLaunch(ctx context.Context) error {
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE) // the end of the user's process must not end the agent
	_, _ = unix.Setsid()
	status := newStatus(1)
	node, err := taskLaunch(ctx, status)
	if err != nil {
		status.line("error", err.Error())
		return err
	}
	// Signals to the step are meant for the programs, which must end before their VMs.
	return node.Serve(context.WithoutCancel(ctx), func() {
		status.line("ready", "")
		status.close()
	})
}

func taskLaunch(ctx context.Context, status *status) (*vmlaunch.VMs, error) {
	if err := harden.Process(harden.SudoVariables); err != nil {
		return nil, err
	}
	cfg, err := config.Load(config.Path)
	if err != nil {
		return nil, err
	}
	client := slurm.Client{Bin: cfg.Slurm.Bin}
	job, err := entitle.FromSudo(ctx, client, os.Getenv)
	if err != nil {
		return nil, err
	}
	if job.Spec, err = entitle.ReadSpec(os.Stdin); err != nil {
		return nil, err
	}
	if err := toNull(0, 2); err != nil {
		return nil, err
	}
	return launchJob(ctx, client, cfg, job, status)
}

// toNull replaces the user's streams by /dev/null: the agent may outlive their readers.
func toNull(fds ...int) error {
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	for _, fd := range fds {
		if err := unix.Dup3(int(null.Fd()), fd, 0); err != nil {
			return err
		}
	}
	return nil
}

// hardened makes a command harden its process first, for sudo if it has --task, else for
// the plugin. launch does this itself, because it reports errors in another way.
func hardened(c *cobra.Command) *cobra.Command {
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if c.Flag("task").Value.String() == "true" {
			return harden.Process(harden.SudoVariables)
		}
		return harden.Process(harden.PluginVariables)
	}
	return c
}
