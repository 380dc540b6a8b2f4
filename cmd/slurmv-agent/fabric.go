package main

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric/node"
	"github.com/slurm-v/slurm-v/internal/apart"
	"github.com/slurm-v/slurm-v/internal/harden"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmlaunch/entitle"
	"github.com/slurm-v/slurm-v/vmlaunch/tags"
)

func newFabric() *cobra.Command {
	c := &cobra.Command{
		Use:   "fabric",
		Short: "Jobs' tags on the fabric, on this node",
	}
	c.AddCommand(newFabricUp(), newFabricClean(), newFabricLinger())
	return c
}

func newFabricUp() *cobra.Command {
	var path string
	c := &cobra.Command{
		Use:   "up",
		Short: "Set up the tags of a job on this node",
		Long: `Set up the tags of a job on this node: a CXI service on each Slingshot card, and the
file with the variables for the job's tasks.

Slurm's plugin starts it as root for the job's first task. SLURMV_ variables have what
Slurm says about the job. File descriptor 3 takes lines for the user, "say TEXT" and
"error TEXT". It may run any number of times.`,
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(c *cobra.Command, _ []string) error { return runFabricUp(c.Context(), path, newStatus(3)) },
	}
	c.Flags().StringVar(&path, "config", config.Path, "read the configuration from `file`")
	return c
}

func runFabricUp(ctx context.Context, path string, status *status) error {
	err := fabricUp(ctx, path, func(text string) {
		status.line("say", fmt.Sprintf("slurm-v: node %s: %s", os.Getenv("SLURMV_NODE"), text))
	})
	if err != nil {
		err = fmt.Errorf("node %s: %w", os.Getenv("SLURMV_NODE"), err)
		status.line("error", err.Error())
	}
	return err
}

func fabricUp(ctx context.Context, path string, say func(string)) error {
	if err := harden.Process(harden.PluginVariables); err != nil {
		return err
	}
	job, err := entitle.TagsFromPlugin(os.Getenv)
	if err != nil {
		return err
	}
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	given, err := node.Open(cfg, os.Getenv("SLURMV_NODE"), administrator(cfg)).Up(ctx, job)
	for _, warning := range given.Warnings {
		say(warning)
	}
	return err
}

// administrator returns the client for root outside of users' jobs, or after
// [harden.Process]: its environment is the node's, and may say where slurm.conf is.
func administrator(cfg config.Config) slurm.Client {
	return slurm.Client{Bin: cfg.Slurm.Bin, Env: os.Environ()}
}

func newFabricClean() *cobra.Command {
	var path, name string
	var how node.Cleaning
	c := &cobra.Command{
		Use:   "clean",
		Short: "Remove what ended jobs left of their tags on this node",
		Long: `Remove what ended jobs left of their tags on this node: CXI services with a VNI of the
pools that belong to no running job. It confirms to the controller what is gone, also if
an earlier confirmation was lost.

EXIT STATUS
===========

    0   nothing is left, and the controller knows it
    1   something is left, or Slurm did not say what runs`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return runFabricClean(c, path, name, how) },
	}
	f := c.Flags()
	f.StringVar(&path, "config", config.Path, "read the configuration from `file`")
	f.StringVar(&name, "node", os.Getenv("SLURMV_NODE"), "this node's `name` in Slurm")
	f.BoolVar(&how.All, "all", false, "also remove services with VNIs outside of the pools")
	f.BoolVar(&how.DryRun, "dry-run", false, "only say what would be done")
	f.DurationVar(&how.Patience, "retry-busy", 5*time.Second, "wait this `long` for services that are in use")
	return c
}

func runFabricClean(c *cobra.Command, path, name string, how node.Cleaning) error {
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	if name, err = slurm.NodeName(name); err != nil {
		return err
	}
	return cleaning(c, cfg, name).Fabric(c.Context(), how)
}

// endTags ends the job's tags on the node, in Slurm's last try. What takes longer goes on
// in the background, so that the job's end need not wait.
func endTags(ctx context.Context, o reclaimOptions, cfg config.Config, name string) error {
	job := tags.Job{Config: cfg, Client: administrator(cfg), Node: name, Number: o.job}
	return job.End(ctx, o.fabric, func(reason string) error {
		return apart.Start("fabric", "linger", "--config", o.config, "--node", name, "--job", strconv.FormatUint(uint64(o.job), 10),
			"--reason", reason)
	})
}

type lingerOptions struct {
	config, node, reason string

	job uint32
}

func newFabricLinger() *cobra.Command {
	var o lingerOptions
	c := &cobra.Command{
		Use:    "linger --node NODE --job JOB",
		Short:  "Remove the tags of an ended job, in the background",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(c *cobra.Command, _ []string) error { return runLinger(c.Context(), o) },
	}
	f := c.Flags()
	f.StringVar(&o.config, "config", config.Path, "read the configuration from `file`")
	f.StringVar(&o.node, "node", "", "this node's `name` in Slurm")
	f.Uint32Var(&o.job, "job", 0, "the job's `id`")
	f.StringVar(&o.reason, "reason", "", "the `words` for which the node is drained; none if it is not")
	return c
}

func runLinger(ctx context.Context, o lingerOptions) error {
	if err := apart.Stand(); err != nil {
		return err
	}
	cfg, err := config.Load(o.config)
	if err != nil {
		return err
	}
	job := tags.Job{Config: cfg, Client: administrator(cfg), Node: o.node, Number: o.job}
	return job.Linger(ctx, o.reason)
}
