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

// Without the plugin, users start launch and reclaim by sudo, inside a step of
// their job (slurmv launch, slurmv reclaim). Nothing of what they own comes from an
// argument or a variable of theirs, see [entitle.FromSudo]; only the VMs they ask for
// do, on standard input.

// runTaskLaunch is launch for such a user. It tells the outcome on standard
// output.
func runTaskLaunch(ctx context.Context) error {
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE) // the user's process may be gone: no reason to die
	_, _ = unix.Setsid()
	status := newStatus(1)
	node, err := taskLaunch(ctx, status)
	if err != nil {
		status.line("error", err.Error())
		return err
	}
	// A signal to the step is for the programs; they end before their VMs.
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
	job, err := entitle.FromSudo(ctx, slurm.Client{Bin: cfg.Slurm.Bin}, os.Getenv)
	if err != nil {
		return nil, err
	}
	if job.Spec, err = entitle.ReadSpec(os.Stdin); err != nil {
		return nil, err
	}
	if err := toNull(0, 2); err != nil {
		return nil, err
	}
	return launchJob(ctx, cfg, job, status)
}

// toNull lets go of the user's streams: the agent may outlive their readers.
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

// hardened makes a command with --task begin so, whoever starts it. launch does it by
// itself, since it has to tell its errors in another way.
func hardened(c *cobra.Command) *cobra.Command {
	c.PreRunE = func(c *cobra.Command, _ []string) error {
		if c.Flag("task").Value.String() == "true" {
			return harden.Process(harden.SudoVariables)
		}
		return harden.Process(harden.PluginVariables)
	}
	return c
}
