package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/images/template"
	"github.com/slurm-v/slurm-v/internal/cli"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmstep"
)

func newImageWarm() *cobra.Command {
	var o cli.Node
	values := map[string]*string{}
	c := &cobra.Command{
		Use:   "warm [flags]",
		Short: "Make a template on this node, or on the nodes of a job",
		Long: `Make a template: a VM that was booted once and saved, from which VMs are restored.

In a job with VM options, it makes a template on each of the job's nodes, of the job's own image,
for VMs of the size that the job has asked for. It makes none where one exists. The job's VMs
start from the template and can be used.

As root on a node, outside of jobs, it makes a template of an image of the catalogue, for all
users who may read the image, and for VMs as a job has them that has the node to itself. The VM
that becomes the template takes CPUs and memory that Slurm does not count.

EXIT STATUS
===========

    0   the templates are there
    1   one could not be made
    2   the command line cannot be run`,
		Example: `  salloc --nodes=4 --vm-per-node=1 --vm-image=$HOME/mine.qcow2 --memory-per-vm=8G slurmv image warm
  ssh n7 slurmv image warm --vm-image debian12-mpi --memory-per-vm 8G --vcpu-per-vm 4`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if os.Getenv(slurm.EnvJobID) != "" {
				return warmInJob(c)
			}
			return warmAsRoot(c, o, values)
		},
	}
	o.Add(c)
	for _, option := range []string{"vm-image", "vm-firmware", "vcpu-per-vm", "memory-per-vm", "disk-size"} {
		values[option] = c.Flags().String(option, "", "as in sbatch; outside of jobs only")
	}
	return c
}

// warmInJob starts the job's VMs from a template. Nodes without the template make it first.
func warmInJob(c *cobra.Command) error {
	spec, err := jobspec.Decode(os.Getenv(vmstep.SpecVariable))
	if err != nil {
		return fmt.Errorf("a template has the size of a job's VMs, and this job has none: submit it with --vm-per-node=1 (%w)", err)
	}
	spec.Start = config.StartWarm
	run := exec.CommandContext(c.Context(), "slurm-v-run", "true")
	run.Env = append(os.Environ(), vmstep.SpecVariable+"="+spec.Encode())
	run.Stdout, run.Stderr = c.OutOrStdout(), c.ErrOrStderr()
	return cli.Run(run)
}

func warmAsRoot(c *cobra.Command, o cli.Node, values map[string]*string) error {
	if os.Geteuid() != 0 {
		return errors.New("your own image: run this in a job with VM options, as in salloc --vm-per-node=1 --vm-image=... slurmv image warm; for all users: as root on the node")
	}
	args := o.AgentArgs("warm")
	for name, value := range values {
		if *value != "" {
			args = append(args, "--"+name, *value)
		}
	}
	run := exec.CommandContext(c.Context(), vmstep.AgentPath(), args...)
	run.Stdout, run.Stderr = c.OutOrStdout(), c.ErrOrStderr()
	return cli.Run(run)
}

func newImageTemplates() *cobra.Command {
	var o cli.Node
	var output string
	c := &cobra.Command{
		Use:   "templates [flags]",
		Short: "List the templates of this node",
		Long: `List the templates of this node, as root: the owner, the image, the size of the VMs, the disk
space, and the last use. The template that was unused for longest comes first, and is removed
first when room is wanted.

EXIT STATUS
===========

    0   they are listed; there may be none
    1   they cannot be read
    2   the command line cannot be run`,
		Example: "  slurmv image templates",
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.CheckOutput(output); err != nil {
				return err
			}
			_, all, err := templates(o)
			switch {
			case err != nil:
				return err
			case output == "json":
				return cli.PrintJSON(c.OutOrStdout(), all)
			}
			return template.WriteTable(c.OutOrStdout(), all)
		},
	}
	o.Add(c)
	cli.AddOutput(c, &output)
	return c
}

// templates lists the templates of the node.
func templates(o cli.Node) (*template.Store, []template.Template, error) {
	node, cfg, err := o.Load()
	if err != nil {
		return nil, nil, err
	}
	store := template.Open(cfg.StateDir(node), int64(cfg.Warm.Size)<<20)
	all, err := store.List()
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("only root can see the templates of a node: run this as root on the node (%w)", err)
	}
	return store, all, err
}

func newImageDrop() *cobra.Command {
	var o cli.Node
	c := &cobra.Command{
		Use:   "drop [flags] ID...",
		Short: "Remove templates of this node",
		Long: `Remove templates of this node, as root. An ID is as slurmv image templates shows it, or "all".
A template stays while VMs run that were restored from it.

EXIT STATUS
===========

    0   they are removed
    1   one is not there, is in use, or could not be removed
    2   the command line cannot be run`,
		Example: "  slurmv image drop 04dba86c1986",
		Args:    cli.AtLeastOne(),
		RunE: func(c *cobra.Command, ids []string) error {
			return dropTemplates(c.Context(), o, ids)
		},
	}
	o.Add(c)
	return c
}

func dropTemplates(ctx context.Context, o cli.Node, ids []string) error {
	store, all, err := templates(o)
	for _, id := range ids {
		found := id == "all"
		for _, t := range all {
			if id == "all" || strings.HasPrefix(filepath.Base(t.Dir), id) {
				found, err = true, errors.Join(err, store.Remove(ctx, t))
			}
		}
		if !found && err == nil {
			err = fmt.Errorf("there is no template %s on this node", id)
		}
	}
	return err
}
