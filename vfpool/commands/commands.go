// Package commands has the commands of slurmv vf.
package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/internal/cli"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vfpool"
)

// New returns the command vf with all its commands.
func New() *cobra.Command {
	c := &cobra.Command{
		Use:   "vf COMMAND",
		Short: "See and make this node's virtual functions",
		Long: `See the SR-IOV virtual functions (VFs) of this node, make them, and let Slurm count them.

Run the commands as root, on the node. Jobs ask for VFs with --sriov.`,
	}
	c.AddCommand(newList(), newCreate(), newGRES())
	return c
}

type listOptions struct {
	cli.Node
	output string
}

func newList() *cobra.Command {
	var o listOptions
	c := &cobra.Command{
		Use:   "list [flags]",
		Short: "List physical and virtual functions, their owners and rates",
		Long: `List this node's physical functions (PFs), their virtual functions (VFs), the jobs that
have the VFs, the rates that the jobs were promised, and the bandwidth that is left.

A PF of the kind "sriov" is a network card's. A PF of the kind "software" is a bridge
that the configuration declares to be a PF. Rates are in Mb/s.

With --output json it prints a list of PFs. name, used_tx_rate, capacity_tx_rate,
used_vfs, capacity_vfs and vfs, and of a VF vf, mac, vlan, spoof_check, trust,
link_state, min_tx_rate, max_tx_rate and allocated, are named as in ConRDMA's node
inventory.

EXIT STATUS
===========

    0   the functions are listed; there may be none
    1   the node's functions or records cannot be read
    2   the command line cannot be run`,
		Example: `  slurmv vf list
  ssh n7 slurmv vf list --output json | jq '.[] | {name, used_tx_rate, capacity_tx_rate}'`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			if err := cli.CheckOutput(o.output); err != nil {
				return err
			}
			return runList(o, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	o.Add(c)
	cli.AddOutput(c, &o.output)
	return c
}

func newCreate() *cobra.Command {
	var o cli.Node
	c := &cobra.Command{
		Use:   "create [flags]",
		Short: "Make the virtual functions that the configuration wants",
		Long: `Make virtual functions (VFs) of this node's network cards, as many of each physical
function (PF) as create and create_per_pf in [vf] of the configuration say. The unit
slurmv-vfs.service runs this command when the node boots. It may run at any time:

- A PF that has as many VFs as wanted is left alone.
- A PF whose VFs a job, a program or the host uses is left as it is, with the reason.
- Otherwise the VFs of the PF are removed and made anew. Its link may go down meanwhile.

Each PF gets a line of output. The VFs are made without a driver (sriov_drivers_autoprobe),
because jobs then get them sooner. Without create and create_per_pf nothing is made.

EXIT STATUS
===========

    0   each PF has its VFs, or this node has no such PF
    1   a PF has not, or the configuration cannot be read
    2   the command line cannot be run`,
		Example: `  slurmv vf create
  systemctl enable slurmv-vfs.service`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			return runCreate(c.Context(), o, c.OutOrStdout())
		},
	}
	o.Add(c)
	return c
}

func newGRES() *cobra.Command {
	var o cli.Node
	c := &cobra.Command{
		Use:   "gres-conf [flags]",
		Short: "Write the lines of gres.conf that let Slurm count this node's VFs",
		Long: `Write the lines of gres.conf that make Slurm count this node's VFs (gres/vf) and their
bandwidth in Mb/s (gres/vfbw). A job then waits in the queue while they are taken.

slurm.conf needs GresTypes=vf,vfbw, and the same counts on the node's line. A comment
in the output has this line's counts.

EXIT STATUS
===========

    0   the lines are written
    1   the node's functions cannot be read
    2   the command line cannot be run`,
		Example: "  slurmv vf gres-conf >> /etc/slurm/gres.conf",
		Args:    cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			node, err := slurm.NodeName(o.Name)
			if err != nil {
				return err
			}
			pfs, err := listPFs(o)
			if err != nil {
				return err
			}
			return vfpool.WriteGRES(c.OutOrStdout(), node, pfs)
		},
	}
	o.Add(c)
	return c
}

func runList(o listOptions, out, words io.Writer) error {
	pfs, err := listPFs(o.Node)
	if err != nil {
		return err
	}
	if o.output == "json" {
		return cli.PrintJSON(out, pfs)
	}
	if len(pfs) == 0 {
		fmt.Fprintln(words, "This node has no physical function. 'slurmv check' says what VFs need.")
		return nil
	}
	return vfpool.WriteTable(out, pfs)
}

func runCreate(ctx context.Context, o cli.Node, out io.Writer) error {
	node, cfg, err := o.Load()
	if err != nil {
		return err
	}
	pool, err := vfpool.Open(cfg, node)
	if err != nil {
		return err
	}
	done, err := pool.Create(ctx)
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("only root can make VFs: run this as root on the node (%w)", err)
	}
	if err == nil && len(done) == 0 {
		fmt.Fprintln(out, "The configuration wants no VFs made: see create in [vf].")
	}
	for _, pf := range done {
		if pf.Err != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", pf.PF, pf.Err))
			continue
		}
		fmt.Fprintf(out, "%s: %s\n", pf.PF, pf.Did)
	}
	return err
}

func listPFs(o cli.Node) ([]vfpool.PF, error) {
	node, cfg, err := o.Load()
	if err != nil {
		return nil, err
	}
	pool, err := vfpool.Open(cfg, node)
	if err != nil {
		return nil, err
	}
	pfs, err := pool.List()
	if errors.Is(err, fs.ErrPermission) {
		err = fmt.Errorf("only root can see which jobs have VFs: run this as root on the node (%w)", err)
	}
	return pfs, err
}
