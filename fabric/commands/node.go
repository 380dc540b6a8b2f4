package commands

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"time"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric/cxi"
	"github.com/slurm-v/slurm-v/internal/cli"
	"github.com/slurm-v/slurm-v/vmstep"
)

type cxiOptions struct {
	config string
	most   bool
	output string
}

func newList() *cobra.Command {
	var o cxiOptions
	c := &cobra.Command{
		Use:   "list [flags]",
		Short: "List the CXI services of this node's Slingshot cards",
		Long: `List the CXI services of this node's Slingshot cards: who may use a card with which VNIs
and traffic classes, and how much of its resources. A service that is the same on
several cards is one line.

With --output json it prints a list of objects with the keys cards, and the service's
own.

EXIT STATUS
===========

    0   the services are listed; there may be none
    1   the library of the cards is missing, or a card cannot be read
    2   the command line cannot be run`,
		Example: `  slurmv fabric list
  slurmv fabric list --max --output json`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return runList(c, o) },
	}
	c.Flags().StringVar(&o.config, "config", config.Path, "read the configuration from `file`")
	c.Flags().BoolVar(&o.most, "max", false, "show how much of each resource a service can have at most, in place of what is reserved for it")
	cli.AddOutput(c, &o.output)
	return c
}

func runList(c *cobra.Command, o cxiOptions) error {
	if err := cli.CheckOutput(o.output); err != nil {
		return err
	}
	cfg, err := config.Load(o.config)
	if err != nil {
		return err
	}
	library, err := cxi.Open(cfg.Fabric.VNI.LibCXI)
	if err != nil {
		return err
	}
	defer library.Close()
	all, readErr := library.All()
	for _, warning := range cxi.Warnings(all) {
		fmt.Fprintln(c.ErrOrStderr(), "slurmv:", warning)
	}
	rows := cxi.Rows(all)
	if o.output == "json" {
		err = cli.PrintJSON(c.OutOrStdout(), rows)
	} else {
		err = cxi.WriteTable(c.OutOrStdout(), rows, o.most)
	}
	return errors.Join(err, readErr)
}

type cleanOptions struct {
	cli.Node
	all, dryRun bool
	retryBusy   time.Duration
}

func newClean() *cobra.Command {
	var o cleanOptions
	c := &cobra.Command{
		Use:   "clean [flags]",
		Short: "Remove what ended jobs left of their tags on this node",
		Long: `Remove what ended jobs left of their tags on this node: CXI services with a VNI of the
site's pools that belong to no running job, and the VLANs and GUIDs of virtual functions
that have those of jobs and are leased to none. It confirms to the controller what is gone,
also if an earlier confirmation was lost. It does not touch running jobs. The health
check that comes with Slurm-V calls it. Run it as root on the node.

Each thing that is removed gets a line of output.

EXIT STATUS
===========

    0   nothing is left, and the controller knows it
    1   something is left, or Slurm did not say what runs
    2   the command line cannot be run`,
		Example: `  slurmv fabric clean --dry-run
  slurmv fabric clean --retry-busy=5m`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return runClean(c, o) },
	}
	o.Add(c)
	f := c.Flags()
	f.BoolVar(&o.all, "all", false, "remove also services with VNIs outside of the pools, except those of the system")
	f.BoolVar(&o.dryRun, "dry-run", false, "only say what would be done")
	f.DurationVar(&o.retryBusy, "retry-busy", 5*time.Second, "wait this `long` for services that are in use")
	return c
}

func runClean(c *cobra.Command, o cleanOptions) error {
	if os.Geteuid() != 0 {
		return errors.New("slurmv fabric clean removes what belongs to jobs of all users: run it as root on the node")
	}
	args := append([]string{"fabric"}, o.AgentArgs("clean")...)
	args = append(args, fmt.Sprintf("--all=%v", o.all), fmt.Sprintf("--dry-run=%v", o.dryRun), "--retry-busy="+o.retryBusy.String())
	agent := exec.CommandContext(c.Context(), vmstep.AgentPath(), args...)
	agent.Stdout, agent.Stderr = c.OutOrStdout(), c.ErrOrStderr()
	return cli.Run(agent)
}
