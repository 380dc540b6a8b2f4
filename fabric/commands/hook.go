package commands

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/internal/cli"
	"github.com/slurm-v/slurm-v/slurm"
)

// NothingToReserve reports whether slurmctld runs reserve or release for a job without tags.
// slurmctld waits for the answer, and most jobs have none.
func NothingToReserve(args []string, env func(string) string) bool {
	return len(args) == 3 && args[1] == "fabric" && slices.Contains([]string{"reserve", "release"}, args[2]) &&
		env(slurm.EnvJobID) != "" && env(fabric.WishVariable) == ""
}

func newReserve(controller Controller) *cobra.Command {
	var o ledgerOptions
	c := &cobra.Command{
		Use:   "reserve [flags]",
		Short: "Give a job its tags, from PrologSlurmctld",
		Long: `Give a job its tags: the job for which slurmctld runs this command as SlurmUser, from
PrologSlurmctld. The installed prolog-slurmctld does so; a site's own script can call
this command, and must pass on its exit status.

The tags are written down in the ledger, and the subnet manager and the fabric manager
hear of them. Then they stand, sealed, in the job's AdminComment, from which the job's
nodes read them. It may be repeated. A job without tags costs nothing.

If no tag is free, the command waits as long as tags of ended jobs are on their way
back. If it fails, Slurm puts a batch job back into the queue and cancels another one;
the job's AdminComment, slurmctld's log and srun or salloc say why.

EXIT STATUS
===========

    0   the job has its tags, or wants none
    1   the job must not start
    2   the command line cannot be run`,
		Example: `  PrologSlurmctld=/usr/local/libexec/slurm-v/prolog-slurmctld   (in slurm.conf)
  slurmv fabric reserve || exit 1                               (in a site's script)`,
		Args: cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error { return controller.Reserve(c, o.config) },
	}
	o.add(c)
	return c
}

type releaseOptions struct {
	ledgerOptions
	force bool
}

func newRelease(controller Controller) *cobra.Command {
	var o releaseOptions
	c := &cobra.Command{
		Use:   "release [flags] [JOB...]",
		Short: "Take a job's tags back, from EpilogSlurmctld",
		Long: `Take back the tags of the job for which slurmctld runs this command as SlurmUser, from
EpilogSlurmctld. Another job gets them only after every node of the job has confirmed
that they are gone from its hardware, for P_Keys the subnet manager, too, and after the
cooling time. A process in the background asks for the confirmations, for minutes.

With --force and jobs, as JOB or JOB.RESTART, an administrator gives up tags that nobody
confirms: of a node that will not come back, or in quarantine. Make sure first that no
such node still sends with them. The jobs must have ended. The job "unknown" stands for
those of which an old copy of the ledger does not know: run slurmv clean on all nodes first.

EXIT STATUS
===========

    0   the job's tags are being released, or are free
    1   they are not
    2   the command line cannot be run`,
		Example: `  EpilogSlurmctld=/usr/local/libexec/slurm-v/epilog-slurmctld   (in slurm.conf)
  slurmv fabric release --force 4217`,
		RunE: func(c *cobra.Command, args []string) error { return runRelease(c, controller, o, args) },
	}
	o.add(c)
	c.Flags().BoolVar(&o.force, "force", false, "give up the tags of these ended jobs without any confirmation")
	return c
}

func runRelease(c *cobra.Command, controller Controller, o releaseOptions, jobs []string) error {
	switch {
	case o.force && len(jobs) > 0:
		return controller.Force(c, o.config, jobs)
	case o.force || len(jobs) > 0:
		return cli.Usagef("name jobs and --force, or neither: without them the command is for EpilogSlurmctld")
	}
	return controller.Release(c, o.config)
}

// newSweep is a command for release, which starts it.
func newSweep(controller Controller) *cobra.Command {
	var o ledgerOptions
	var untilQuiet bool
	c := &cobra.Command{
		Use:    "sweep [flags]",
		Short:  "Look for confirmations of ended jobs",
		Hidden: true,
		Args:   cli.Args(cobra.NoArgs),
		RunE:   func(c *cobra.Command, _ []string) error { return controller.Sweep(c, o.config, untilQuiet) },
	}
	o.add(c)
	c.Flags().BoolVar(&untilQuiet, "until-quiet", false, "go on until ended jobs wait for nobody, or for ten minutes, and while jobs have multicast addresses")
	return c
}
