package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/internal/cli"
	"github.com/slurm-v/slurm-v/internal/jobvms"
	"github.com/slurm-v/slurm-v/slurm"
)

type psOptions struct {
	jobs   []string
	all    bool
	long   bool
	output string
}

func newPS() *cobra.Command {
	var o psOptions
	c := &cobra.Command{
		Use:   "ps [flags] [JOB...]",
		Short: "List my VMs",
		Long: `List the VMs of my running jobs: job, VM, node, address, state and age.

Inside a job, list the VMs of this job only. slurmv asks the agent on each node, so
the list shows what runs there now. A job whose VMs are still starting has one line
per node with the state "starting".

With --output json it prints a list of objects, one per VM, with the keys job,
job_id, user, vm, number, node, address, mac, state, started, age_seconds and stages
(of the VM's own launch, see slurmv report). cpus and emulator_cpus are the node's CPUs
to which the vCPUs and QEMU's other threads are pinned; unpinned says why they are not.
clock has the rate of the VM's clock (1 is as fast as the node's), error, by which the true
rate may differ, and source, the kernel's. There is no clock before it is measured.

EXIT STATUS
===========

    0   the VMs are listed; there may be none
    1   Slurm or some agent did not answer; the others are listed
    2   the command line cannot be run`,
		Example: `  slurmv ps
  slurmv ps 4217
  slurmv ps --output json | jq '.[].address'`,
		RunE: func(c *cobra.Command, args []string) error {
			o.jobs = args
			return runPS(c.Context(), o, c.OutOrStdout(), c.ErrOrStderr())
		},
	}
	f := c.Flags()
	f.BoolVarP(&o.all, "all", "a", false, "list all my jobs with VMs, not only this one; as root, those of all users")
	f.BoolVarP(&o.long, "long", "l", false, "show also user, MAC address, time of the launch, the node's CPUs that only this VM uses, and how many times as fast as the node's clock the VM's runs")
	cli.AddOutput(c, &o.output)
	return c
}

func runPS(ctx context.Context, o psOptions, out, words io.Writer) error {
	if err := cli.CheckOutput(o.output); err != nil {
		return err
	}
	selected, err := o.which(os.Getenv, os.Getuid())
	if err != nil {
		return err
	}
	jobs, err := jobvms.FindAll(ctx, selected)
	if err != nil {
		return err
	}
	asked, askErr := jobvms.AskAll(ctx, jobs)
	rows := jobvms.List(asked, time.Now())
	if len(jobs) == 0 {
		fmt.Fprintln(words, none(selected))
	}
	if o.output == "json" {
		return errors.Join(cli.PrintJSON(out, rows), askErr)
	}
	return errors.Join(jobvms.WriteTable(out, rows, o.long), askErr)
}

// which says which jobs to list. Without arguments this depends on where slurmv runs:
// inside a job it is this job.
func (o psOptions) which(env func(string) string, uid int) (slurm.Which, error) {
	for _, job := range o.jobs {
		if err := jobvms.CheckJob(job); err != nil {
			return slurm.Which{}, err
		}
	}
	switch job := slurm.ThisJob(env); {
	case len(o.jobs) > 0:
		return slurm.Which{Jobs: o.jobs}, nil
	case o.all:
		return slurm.Which{Everyone: uid == 0}, nil
	case job != "":
		return slurm.Which{Jobs: []string{job}}, nil
	}
	return slurm.Which{}, nil
}

// none says that none of the selected jobs has VMs.
func none(w slurm.Which) string {
	switch {
	case len(w.Jobs) == 1:
		return "Job " + w.Jobs[0] + " has no running VMs."
	case len(w.Jobs) > 1:
		return "None of the jobs " + strings.Join(w.Jobs, ", ") + " has running VMs."
	case w.Everyone:
		return "No job has running VMs."
	}
	return "None of your jobs has running VMs."
}
