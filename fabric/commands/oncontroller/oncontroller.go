// Package oncontroller does the commands of slurmv fabric that work on the ledger, or on the
// managers of the fabric.
package oncontroller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/controller"
	"github.com/slurm-v/slurm-v/fabric/controller/remote"
	"github.com/slurm-v/slurm-v/fabric/ledger"
	"github.com/slurm-v/slurm-v/internal/cli"
	"github.com/slurm-v/slurm-v/journal"
)

// Commands implements [commands.Controller].
type Commands struct{}

// Reserve is PrologSlurmctld.
func (Commands) Reserve(c *cobra.Command, path string) error {
	if os.Getenv(fabric.WishVariable) == "" {
		return nil
	}
	script, err := script(c, path)
	if err != nil {
		return script.Refuse(c.Context(), err)
	}
	sweep, err := sweepLine(path)
	if err != nil {
		return script.Refuse(c.Context(), err)
	}
	return script.Prolog(c.Context(), sweep)
}

// Release is EpilogSlurmctld.
func (Commands) Release(c *cobra.Command, path string) error {
	if os.Getenv(fabric.WishVariable) == "" {
		return nil
	}
	script, err := script(c, path)
	if err != nil {
		return err
	}
	sweep, err := sweepLine(path)
	if err != nil {
		return err
	}
	return script.Epilog(c.Context(), sweep)
}

// sweepLine is the command line of the process that goes on in the background.
func sweepLine(path string) ([]string, error) {
	self, err := os.Executable()
	return []string{self, "fabric", "sweep", "--config", path, "--until-quiet"}, err
}

// script is what slurmctld runs. Nobody reads what that prints, so syslog has it, too.
func script(c *cobra.Command, path string) (controller.Script, error) {
	cfg, err := config.Load(path)
	return controller.Script{Config: cfg, Warn: controller.Syslog(warnings(c)), Managers: remote.Set}, err
}

// warnings prints sentences to the command's words.
func warnings(c *cobra.Command) func(string) {
	return func(sentence string) { fmt.Fprintln(c.ErrOrStderr(), "slurmv:", sentence) }
}

func open(c *cobra.Command, path string) (*controller.Controller, error) {
	cfg, err := config.Load(path)
	if err != nil {
		return nil, err
	}
	ctl, err := controller.Open(c.Context(), cfg, warnings(c))
	if err != nil {
		return nil, err
	}
	return ctl, remote.Set(ctl)
}

// Sweep looks for what can be released, once or until nothing is left to wait for.
func (Commands) Sweep(c *cobra.Command, path string, untilQuiet bool) error {
	if untilQuiet {
		return sweepOn(c, path, time.Hour)
	}
	ctl, err := open(c, path)
	if err != nil {
		return err
	}
	_, err = ctl.Sweep(c.Context())
	return err
}

// sweepOn sweeps until all is quiet. After so long it begins anew, with the program and the
// configuration that there are then: a job with multicast addresses may run for weeks.
func sweepOn(c *cobra.Command, path string, long time.Duration) error {
	script, err := script(c, path)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(c.Context(), long)
	defer cancel()
	err = script.Sweep(ctx)
	if c.Context().Err() != nil || ctx.Err() == nil {
		return err
	}
	line, err := sweepLine(path)
	if err != nil {
		return err
	}
	return fmt.Errorf("go on with %s: %w", line[0], syscall.Exec(line[0], line, os.Environ()))
}

// Force gives up tags that nobody confirms. Each job is JOB or JOB.RESTART, or unknown for [ledger.Unknown].
func (Commands) Force(c *cobra.Command, path string, jobs []string) error {
	ctl, err := open(c, path)
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
		err = errors.Join(err, ctl.Force(ctx, run))
	}
	return err
}

// runsOf returns the run JOB.RESTART, or those of JOB that can be forced.
func runsOf(ctx context.Context, ctl *controller.Controller, text string) ([]journal.ID, error) {
	if text == "unknown" {
		return []journal.ID{ledger.Unknown}, nil
	}
	if id, err := journal.ParseID(text); err == nil {
		return []journal.ID{id}, nil
	}
	numbers, err := cli.JobNumbers([]string{text})
	if err != nil {
		return nil, err
	}
	entries, err := ctl.Entries(ctx, numbers[0])
	if err == nil && len(entries) == 0 {
		err = fmt.Errorf("job %s has no tags: slurmv fabric pool shows the jobs that have", text)
	}
	return forceable(entries), err
}

// forceable returns the runs that have ended and still have tags. If there are none, it returns all:
// the error of Force then says why.
func forceable(entries []ledger.Entry) (runs []journal.ID) {
	var others []journal.ID
	for _, e := range entries {
		if e.Ended.IsZero() || e.State == ledger.Released {
			others = append(others, e.Reservation.Job)
		} else {
			runs = append(runs, e.Reservation.Job)
		}
	}
	if len(runs) == 0 {
		return others
	}
	return runs
}

// Pool shows the pools. If slurmctld does not answer, it shows what the ledger has.
func (Commands) Pool(c *cobra.Command, path, output string) error {
	ctl, err := open(c, path)
	if err != nil {
		return err
	}
	_, sweepErr := ctl.Sweep(c.Context())
	states, err := ctl.Pools(c.Context(), fabric.Pools(ctl.Site))
	if err != nil {
		return err
	}
	rows := controller.PoolRows(states)
	if len(rows) == 0 {
		fmt.Fprintln(c.ErrOrStderr(), "This site has no pools: see [fabric] in", path)
	}
	if output == "json" {
		err = cli.PrintJSON(c.OutOrStdout(), rows)
	} else if len(rows) > 0 {
		err = controller.WritePools(c.OutOrStdout(), rows)
	}
	if err == nil {
		err = sweepErr
	}
	return err
}

// Entries shows the runs of a job.
func (Commands) Entries(c *cobra.Command, path, output string, job uint32) error {
	ctl, err := open(c, path)
	if err != nil {
		return err
	}
	entries, err := ctl.Entries(c.Context(), job)
	if err != nil {
		return err
	}
	if output == "json" {
		return cli.PrintJSON(c.OutOrStdout(), entries)
	}
	if len(entries) == 0 {
		fmt.Fprintf(c.ErrOrStderr(), "Job %d has no tags.\n", job)
		return nil
	}
	return controller.WriteEntries(c.OutOrStdout(), entries, time.Now())
}

// Partitions carries out an order of the controller's on OpenSM's host.
func (Commands) Partitions(c *cobra.Command, path string) error {
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	order, err := controller.ReadOrder(cfg.Fabric, c.InOrStdin())
	if err != nil {
		return err
	}
	note, err := order.Apply(c.Context(), cfg.Fabric.PKey)
	if note != "" {
		fmt.Fprintln(c.ErrOrStderr(), "slurmv:", note)
	}
	return err
}
