package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmlaunch"
	"github.com/slurm-v/slurm-v/vmstep"
)

func newWarm() *cobra.Command {
	var path, name string
	c := &cobra.Command{
		Use:   "warm --vm-image NAME",
		Short: "Make a template of an image of the catalogue on this node, for all users",
		Args:  cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error {
			return runWarm(c, path, name)
		},
	}
	c.Flags().StringVar(&path, "config", config.Path, "read the configuration from `file`")
	c.Flags().StringVar(&name, "node", os.Getenv("SLURMV_NODE"), "this node's `name` in Slurm")
	for _, option := range sizeOptions {
		c.Flags().String(option, "", "as in sbatch")
	}
	return c
}

// sizeOptions are the options of sbatch that a template depends on.
var sizeOptions = []string{"vm-image", "vm-firmware", "vcpu-per-vm", "memory-per-vm", "disk-size"}

func runWarm(c *cobra.Command, path, name string) error {
	unix.Umask(0o022)
	values := map[string]string{"vm-per-node": "1", "vm-mount": "none", "vm-start": string(config.StartWarm), "vm-hugepages": string(config.HugePagesNo)}
	for _, option := range sizeOptions {
		if flag := c.Flags().Lookup(option); flag.Changed {
			values[option] = flag.Value.String()
		}
	}
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	node, err := slurm.NodeName(name)
	if err != nil {
		return err
	}
	spec, err := jobspec.ParseIn("/", values, func(string) string { return "" }, cfg)
	if err != nil {
		return err
	}
	if _, ok := cfg.Images.Catalogue[spec.Image]; !ok {
		return errors.New("a template for all users needs an image of the catalogue; for an image of your own, run slurmv image warm in a job with VM options")
	}
	said := ""
	made, err := vmlaunch.MakeSiteTemplate(c.Context(), cfg, node, spec, func(p vmstep.Progress) {
		if p.Stage != said {
			said = p.Stage
			fmt.Fprintln(c.ErrOrStderr(), p.Stage)
		}
	})
	if err == nil {
		fmt.Fprintln(c.OutOrStdout(), made)
	}
	return err
}
