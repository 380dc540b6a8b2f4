package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/internal/cli"
	"github.com/slurm-v/slurm-v/internal/joblogs"
	"github.com/slurm-v/slurm-v/internal/jobvms"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmstep"
)

type logsOptions struct {
	job  string
	node string
	vm   int // -1 for all
}

func newLogs() *cobra.Command {
	var o logsOptions
	c := &cobra.Command{
		Use:   "logs [flags] JOB",
		Short: "Show the logs and consoles of a job's VMs",
		Long: `Show what the node agents of a job have logged and what its VMs have printed
on their consoles.

While the VMs run, slurmv asks for their consoles. When a node gives a job's
resources back, it writes all logs to slurmv-JOB/NODE in the job's working directory,
and slurmv reads them there. If this directory cannot be written, the logs stay on the
node, in the directory logs of its state directory (/var/lib/slurmv/NODE by default),
which only root can read.

EXIT STATUS
===========

    0   the logs are shown
    1   there are none, or they cannot be read
    2   the command line cannot be run`,
		Example: `  slurmv logs 4217
  slurmv logs --node n2 --vm 3 4217`,
		Args: cli.AtMostOne(),
		RunE: func(c *cobra.Command, args []string) error {
			t, err := targetOf(args, os.Getenv)
			if err != nil {
				return err
			}
			o.job = t.Job
			return runLogs(c.Context(), o, c.OutOrStdout())
		},
	}
	c.Flags().StringVar(&o.node, "node", "", "show only the node with this `name`")
	c.Flags().IntVar(&o.vm, "vm", -1, "show only the console of the VM with this `number`")
	return c
}

func runLogs(ctx context.Context, o logsOptions, out io.Writer) error {
	saved, err := joblogs.Find(ctx, o.job)
	if err != nil {
		return err
	}
	shown, err := o.printSaved(out, saved)
	if err != nil {
		return err
	}
	// VMs may run even if there are logs: earlier VMs of the job have ended and were
	// started again.
	live, err := o.printRunning(ctx, out)
	if err == nil && shown+live == 0 {
		return saved.Nothing(o.job)
	}
	return err
}

func (o logsOptions) printSaved(out io.Writer, saved joblogs.Saved) (shown int, err error) {
	for _, file := range saved.Files() {
		if !o.wants(file) {
			continue
		}
		if err := file.Print(out); err != nil {
			return shown, err
		}
		shown++
	}
	return shown, nil
}

// wants reports whether the user has asked for a saved log.
func (o logsOptions) wants(f joblogs.File) bool {
	if o.node != "" && f.Node != o.node || strings.HasSuffix(f.Name, ".json") {
		return false
	}
	return o.vm < 0 || f.Name == "vm"+strconv.Itoa(o.vm)+".console"
}

// printRunning shows the consoles of running VMs.
func (o logsOptions) printRunning(ctx context.Context, out io.Writer) (shown int, err error) {
	jobs, err := jobvms.FindAll(ctx, slurm.Which{Jobs: []string{o.job}})
	if err != nil {
		return 0, err
	}
	asked, err := jobvms.AskAll(ctx, jobs)
	for _, j := range asked {
		for _, n := range j.Nodes {
			for _, vm := range n.VMs {
				if err != nil || !o.wants(joblogs.File{Node: n.Node, Name: vm.Name + ".console"}) {
					continue
				}
				err = printConsole(ctx, out, j.StepJob, n.Node, vm)
				shown++
			}
		}
	}
	return shown, err
}

func printConsole(ctx context.Context, out io.Writer, job slurm.StepJob, node string, vm nodeagent.VM) error {
	joblogs.PrintTitle(out, node, vm.Name+".console")
	s := jobvms.Step{Job: job, Node: node, Command: vmstep.AgentQuery("console", "--vm="+strconv.Itoa(vm.Number))}
	if err := s.Run(ctx, jobvms.StreamTo(out)); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out)
	return err
}
