package main

import (
	"cmp"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/cli"
	"github.com/slurm-v/slurm-v/jobspec"
)

// newResources is a command for the site's scripts, mainly cli_filter.lua.
func newResources() *cobra.Command {
	var path string
	var lines bool
	values := map[string]*string{}
	c := &cobra.Command{
		Use:    "resources --vm-per-node=N [VM options]",
		Short:  "Print what a request for VMs needs of Slurm on each node",
		Hidden: true,
		Long: `Print what a request for VMs needs of Slurm on each node: one line with CPUs and
memory (MiB). If the request has VFs, the line also has their number and the bandwidth
that they reserve (Mb/s). At a site where Slurm counts tags on the fabric as licences, it
also has those. With --vm-fabric alone, which makes no VMs, these may be nothing.

EXIT STATUS
===========

    0   the resources are printed
    1   an option's value is wrong
    2   the command line cannot be run`,
		Example: `  $ slurmv resources --vm-per-node=2 --vcpu-per-vm=2 --memory-per-vm=1G
  cpus:4,mem:2560`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return runResources(path, lines, given(c, values), c.OutOrStdout())
		},
	}
	for _, o := range jobspec.Options {
		values[o.Name] = c.Flags().String(o.Name, "", o.Usage)
	}
	c.Flags().StringVar(&path, "config", config.Path, "read the configuration from `file`")
	c.Flags().BoolVar(&lines, "directives", false, "print the #SBATCH lines that ask for these resources")
	return c
}

// given returns the options that are on the command line.
func given(c *cobra.Command, values map[string]*string) map[string]string {
	set := map[string]string{}
	for name, value := range values {
		if c.Flags().Changed(name) {
			set[name] = *value
		}
	}
	return set
}

func runResources(path string, lines bool, values map[string]string, out io.Writer) error {
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	r, err := resourcesOf(values, cfg)
	if err != nil {
		return err
	}
	if !lines {
		_, err = fmt.Fprintln(out, cmp.Or(r.Flat(), "nothing"))
		return err
	}
	for _, line := range r.Directives() {
		fmt.Fprintln(out, line)
	}
	return nil
}

func resourcesOf(values map[string]string, cfg config.Config) (jobspec.Resources, error) {
	if jobspec.WithoutVMs(values) {
		wish, err := jobspec.ParseWithoutVMs(values, cfg)
		return jobspec.Resources{Licenses: jobspec.LicensesOf(wish, cfg)}, err
	}
	if _, given := values["vm-image"]; !given {
		values["vm-image"] = "/any" // the image does not change the need, so callers may leave it out
	}
	spec, err := jobspec.Parse(values, os.Getenv, cfg)
	return spec.Resources(cfg), err
}
