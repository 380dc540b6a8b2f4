package commands

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric/controller"
	"github.com/slurm-v/slurm-v/fabric/controller/remote"
	"github.com/slurm-v/slurm-v/internal/cli"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
)

// NothingToReserve reports whether slurmctld runs reserve or release for a job without tags.
// slurmctld waits for the answer, and most jobs have none.
func NothingToReserve(args []string, env func(string) string) bool {
	return len(args) == 3 && args[1] == "fabric" && slices.Contains([]string{"reserve", "release"}, args[2]) &&
		env(slurm.EnvJobID) != "" && env(controller.WishVariable) == ""
}

func newReserve() *cobra.Command {
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
		RunE: func(c *cobra.Command, _ []string) error { return runReserve(c, o) },
	}
	o.add(c)
	return c
}

func runReserve(c *cobra.Command, o ledgerOptions) error {
	if os.Getenv(controller.WishVariable) == "" {
		return nil
	}
	script, err := o.script(c)
	if err != nil {
		return err
	}
	return script.Prolog(c.Context())
}

func (o ledgerOptions) script(c *cobra.Command) (controller.Script, error) {
	cfg, err := config.Load(o.config)
	return controller.Script{Config: cfg, Warn: warnings(c), Managers: remote.Set}, err
}

type releaseOptions struct {
	ledgerOptions
	force bool
}

func newRelease() *cobra.Command {
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
such node still sends with them. The jobs must have ended.

EXIT STATUS
===========

    0   the job's tags are being released, or are free
    1   they are not
    2   the command line cannot be run`,
		Example: `  EpilogSlurmctld=/usr/local/libexec/slurm-v/epilog-slurmctld   (in slurm.conf)
  slurmv fabric release --force 4217`,
		RunE: func(c *cobra.Command, args []string) error { return runRelease(c, o, args) },
	}
	o.add(c)
	c.Flags().BoolVar(&o.force, "force", false, "give up the tags of these ended jobs without any confirmation")
	return c
}

func runRelease(c *cobra.Command, o releaseOptions, jobs []string) error {
	switch {
	case o.force && len(jobs) > 0:
		return forceRelease(c, o.ledgerOptions, jobs)
	case o.force || len(jobs) > 0:
		return cli.Usagef("name jobs and --force, or neither: without them the command is for EpilogSlurmctld")
	case os.Getenv(controller.WishVariable) == "":
		return nil
	}
	script, err := o.script(c)
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return script.Epilog(c.Context(), []string{self, "fabric", "sweep", "--config", o.config, "--until-quiet"})
}

func forceRelease(c *cobra.Command, o ledgerOptions, jobs []string) error {
	ctl, err := o.open(c.Context(), c)
	if err != nil {
		return err
	}
	var all error
	for _, text := range jobs {
		all = errors.Join(all, forceJob(c.Context(), ctl, text))
	}
	return all
}

func forceJob(ctx context.Context, ctl *controller.Controller, text string) error {
	runs, err := runsOf(ctx, ctl, text)
	for _, run := range runs {
		if err == nil {
			err = ctl.Force(ctx, run)
		}
	}
	return err
}

// runsOf returns the run JOB.RESTART, or all ended runs of JOB.
func runsOf(ctx context.Context, ctl *controller.Controller, text string) (runs []journal.ID, err error) {
	if id, err := journal.ParseID(text); err == nil {
		return []journal.ID{id}, nil
	}
	numbers, err := cli.JobNumbers([]string{text})
	if err != nil {
		return nil, err
	}
	entries, err := ctl.Entries(ctx, numbers[0])
	for _, e := range entries {
		runs = append(runs, e.Reservation.Job)
	}
	if err == nil && len(runs) == 0 {
		err = fmt.Errorf("job %s has no tags: slurmv fabric pool shows the jobs that have", text)
	}
	return runs, err
}

// newSweep is a command for release, which starts it.
func newSweep() *cobra.Command {
	var o ledgerOptions
	var untilQuiet bool
	c := &cobra.Command{
		Use:    "sweep [flags]",
		Short:  "Look for confirmations of ended jobs",
		Hidden: true,
		Args:   cli.Args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			ctl, err := o.open(c.Context(), c)
			if err != nil {
				return err
			}
			if untilQuiet {
				ctx, cancel := context.WithTimeout(c.Context(), time.Hour)
				defer cancel()
				return ctl.SweepUntilQuiet(ctx)
			}
			_, err = ctl.Sweep(c.Context())
			return err
		},
	}
	o.add(c)
	c.Flags().BoolVar(&untilQuiet, "until-quiet", false, "go on until ended jobs wait for nobody, or for ten minutes")
	return c
}
