package main

import (
	"context"
	"errors"
	"os"
	"os/signal"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/vmstep"
)

func newHold() *cobra.Command {
	var path string
	cmd := &cobra.Command{
		Use:   "hold",
		Short: "Be the task of the VM step on this node",
		Long: `Be the task of the VM step on this node, as the job's user.

slurm-v-run starts it. It tells slurm-v-run's keeper which VMs this node has,
takes the map of all VMs to the agent, and stays until the step ends. It ignores
every signal but TERM, because signals to the job are for its programs.`,
		Args:   cobra.NoArgs,
		Hidden: true,
		RunE: func(*cobra.Command, []string) error {
			return runHold(path)
		},
	}
	cmd.Flags().StringVar(&path, "config", config.Path, "read the configuration from this `file`")
	return cmd
}

// errStepEnds is why a hold that was told to end before the VMs were ready ends.
var errStepEnds = errors.New("the VM step was ended before the VMs were ready")

func runHold(path string) error {
	ctx := untilTerm()
	client, err := dialAgent(ctx, path)
	if err != nil {
		return err
	}
	holder, err := client.Hold(ctx)
	if err != nil {
		return err
	}
	return vmstep.Hold(ctx, holder, os.Stdin, os.Stdout)
}

// untilTerm returns a context that ends with SIGTERM. All other signals that can
// be caught are swallowed, those that would stop the process and SIGPIPE included.
func untilTerm() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	// Nobody reads swallowed; Notify does not wait for a full channel.
	swallowed, term := make(chan os.Signal, 1), make(chan os.Signal, 1)
	signal.Notify(swallowed)
	signal.Notify(term, unix.SIGTERM)
	go func() {
		<-term
		cancel(errStepEnds)
	}()
	return ctx
}

// dialAgent connects to the agent of this task's job on this node.
func dialAgent(ctx context.Context, configPath string) (*nodeagent.Client, error) {
	socket, err := agentSocket(configPath, os.Getenv)
	if err != nil {
		return nil, err
	}
	return nodeagent.Dial(ctx, socket)
}

func agentSocket(configPath string, env func(string) string) (string, error) {
	cfg, err := config.Load(configPath)
	if err != nil {
		return "", err
	}
	return nodeagent.SocketFromEnv(cfg.RunDir, env)
}
