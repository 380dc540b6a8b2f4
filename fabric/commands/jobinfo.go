package commands

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/internal/cli"
	"github.com/slurm-v/slurm-v/internal/jobvms"
	"github.com/slurm-v/slurm-v/slurm"
)

type jobInfoOptions struct {
	ledgerOptions
	output string
	ledger bool
}

func newJobInfo(controller Controller) *cobra.Command {
	var o jobInfoOptions
	c := &cobra.Command{
		Use:   "jobinfo [flags] [JOB]",
		Short: "Show the tags of a job",
		Long: `Show the tags that a job has.

For a user, these are the variables that the job's programs have on its first node, by
which they find the job's tags: SLURMV_VLAN, SLURMV_PKEY, SLINGSHOT_VNIS and others.
slurmv asks for them in a short step of the job. Inside the job it shows those of the
node where it runs, and you may leave out JOB.

With --ledger it is what the ledger of this controller knows, also after the job's end:
its state, its tags, why it has none, and who has not confirmed their release. SlurmUser
and root can read it; for root outside of a job --ledger is the default. A job's secret for
hardware collectives is never shown.

With --output json it prints an object with the variables, or a list of the job's runs
with the keys reservation, state, nodes, manager, began, ended and why.

EXIT STATUS
===========

    0   the job's tags are shown; it may have none
    1   the job does not run, or nobody answered
    2   the command line cannot be run`,
		Example: `  slurmv fabric jobinfo 4217
  srun --jobid=4217 --overlap slurmv fabric jobinfo --output json`,
		Args: cli.AtMostOne(),
		RunE: func(c *cobra.Command, args []string) error {
			if !c.Flags().Changed("ledger") {
				o.ledger = os.Geteuid() == 0 && os.Getenv(slurm.EnvJobID) == ""
			}
			return runJobInfo(c, controller, o, args)
		},
	}
	o.add(c)
	cli.AddOutput(c, &o.output)
	c.Flags().BoolVar(&o.ledger, "ledger", false, "read the ledger of this controller, as SlurmUser or root; for root outside of a job the default")
	return c
}

func runJobInfo(c *cobra.Command, controller Controller, o jobInfoOptions, args []string) error {
	if err := cli.CheckOutput(o.output); err != nil {
		return err
	}
	own := os.Getenv(slurm.EnvJobID)
	job := own
	if len(args) > 0 {
		job = args[0]
	}
	numbers, err := cli.JobNumbers([]string{job})
	switch {
	case job == "":
		return cli.Usagef("name the job: slurmv fabric jobinfo JOB")
	case err != nil:
		return err
	case o.ledger:
		return controller.Entries(c, o.config, o.output, numbers[0])
	case job == own:
		return printTags(c.OutOrStdout(), o.output, os.Environ())
	}
	return askJobInfo(c, o, job)
}

// askJobInfo runs this command in a step of the job.
func askJobInfo(c *cobra.Command, o jobInfoOptions, job string) error {
	srun, err := slurm.Srun()
	if err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	step := exec.CommandContext(c.Context(), srun, "--jobid="+job, "--overlap", "--nodes=1", "--ntasks=1", "--quiet",
		self, "fabric", "jobinfo", "--output="+o.output)
	step.Stdout, step.Stderr = c.OutOrStdout(), c.ErrOrStderr()
	var exit *exec.ExitError
	switch err := step.Run(); {
	case errors.As(err, &exit):
		return jobvms.ExitStatus(1)
	default:
		return err
	}
}

// tagVariables begin the names of variables about tags. The token of hardware collectives,
// FI_CXI_COLL_MCAST_TOKEN, is none of them.
var tagVariables = []string{"SLINGSHOT_", "SLURMV_VLAN", "SLURMV_PKEY", "SLURMV_VNI", "SLURMV_VFS", "FI_CXI_HWCOLL_", "FI_CXI_COLL_JOB_"}

// printTags prints the variables about the job's tags.
func printTags(out io.Writer, output string, env []string) error {
	tags := map[string]string{}
	for _, entry := range env {
		name, value, _ := strings.Cut(entry, "=")
		if slices.ContainsFunc(tagVariables, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			tags[name] = value
		}
	}
	if output == "json" {
		return cli.PrintJSON(out, tags)
	}
	if len(tags) == 0 {
		_, err := fmt.Fprintln(out, "This job has no tags of its own.")
		return err
	}
	t := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	for _, name := range sortedNames(tags) {
		fmt.Fprintf(t, "%s\t%s\n", name, tags[name])
	}
	return t.Flush()
}

func sortedNames(of map[string]string) (names []string) {
	for name := range of {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
