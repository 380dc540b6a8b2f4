package commands

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/letter"
	"github.com/slurm-v/slurm-v/internal/cli"
)

func newKey() *cobra.Command {
	return &cobra.Command{
		Use:   "key",
		Short: "Print a new key that seals reservations",
		Long: `Print a new key. With it the controllers seal what they tell the nodes of a job's tags,
so that users neither read nor forge it. All controllers and nodes need the same file. It
belongs to root, who alone can write it; on controllers the group of SlurmUser reads it.

A new key takes effect at once: jobs that run keep their tags, and jobs that are just
starting may have to be requeued.

EXIT STATUS
===========

    0   the key is printed
    2   the command line cannot be run`,
		Example: `  umask 077; slurmv fabric key > /etc/slurm-v/fabric.key
  chown root:slurm /etc/slurm-v/fabric.key; chmod 0640 /etc/slurm-v/fabric.key`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			_, err := fmt.Fprintln(c.OutOrStdout(), letter.NewKey())
			return err
		},
	}
}

func newPartitions(controller Controller) *cobra.Command {
	var path string
	c := &cobra.Command{
		Use:   "partitions [flags]",
		Short: "Change the members of a P_Key in OpenSM's file on this host",
		Long: `Change the members of a job's P_Key in the partitions file of the OpenSM on this host, and
let OpenSM read it. The order comes from the standard input, where the controller has
written it: see opensm_command in [fabric.pkey] of the configuration. Only P_Keys of the
pools of this host's configuration, and ports of jobs' VFs, are changed. The site's own
text in the file stays.

The command returns when the members that are removed have lost the P_Key.

EXIT STATUS
===========

    0   the members are changed
    1   they are not, or ports still have the P_Key
    2   the command line cannot be run`,
		Example: `  opensm_command = ["ssh", "root@sm1", "slurmv", "fabric", "partitions"]   (in slurmv.toml)`,
		Args:    cli.Args(cobra.NoArgs),
		RunE:    func(c *cobra.Command, _ []string) error { return controller.Partitions(c, path) },
	}
	c.Flags().StringVar(&path, "config", config.Path, "read the configuration from `file`")
	return c
}

// multicastAddresses is how many multicast addresses a Slingshot fabric has for collectives
// (Flux's Slingshot design, after HPE's documentation).
const multicastAddresses = 4086

type planOptions struct {
	plan                                bool
	addresses, nodes, smallest, perNode int
}

func newCollectives() *cobra.Command {
	var o planOptions
	c := &cobra.Command{
		Use:   "collectives --plan --nodes=N [flags]",
		Short: "Recommend addrs_per_job for hardware collectives",
		Long: `Recommend how many multicast addresses of the Slingshot fabric each job gets, by HPE's
formula: those of the fabric, divided among the smallest jobs with hardware collectives
that fill the system, and among the jobs that share a node.

The output is lines for [fabric.collectives] of slurmv.toml.

EXIT STATUS
===========

    0   the lines are printed
    1   there are too few addresses for such jobs
    2   the command line cannot be run`,
		Example: `  slurmv fabric collectives --plan --nodes=11136 --min-nodes=64`,
		Args:    cli.Args(cobra.NoArgs),
		RunE:    func(c *cobra.Command, _ []string) error { return runCollectives(c, o) },
	}
	f := c.Flags()
	f.BoolVar(&o.plan, "plan", false, "recommend values")
	f.IntVar(&o.nodes, "nodes", 0, "`number` of nodes of the system")
	f.IntVar(&o.smallest, "min-nodes", 64, "`number` of nodes of the smallest job that has hardware collectives")
	f.IntVar(&o.perNode, "jobs-per-node", 1, "`number` of jobs that share a node")
	f.IntVar(&o.addresses, "addresses", multicastAddresses, "`number` of multicast addresses of the fabric")
	return c
}

func runCollectives(c *cobra.Command, o planOptions) error {
	if !o.plan || o.nodes < 1 || o.smallest < 1 || o.perNode < 1 || o.addresses < 1 {
		return cli.Usagef("give --plan, and --nodes and the other numbers from 1 on")
	}
	addrs := fabric.PlanCollectives(o.addresses, o.nodes, o.smallest, o.perNode)
	if addrs < 1 {
		return fmt.Errorf("%d multicast addresses do not suffice for jobs of %d of %d nodes: raise --min-nodes", o.addresses, o.smallest, o.nodes)
	}
	_, err := fmt.Fprintf(c.OutOrStdout(), "addrs_per_job = %d\nmin_nodes = %d\n", addrs, o.smallest)
	return err
}
