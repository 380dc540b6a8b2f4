package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vmlaunch"
)

func newClean() *cobra.Command {
	var path, node string
	c := &cobra.Command{
		Use:   "clean",
		Short: "Reclaim what ended jobs left on this node",
		Long: `Reclaim what ended jobs left on this node, for example after a power cut.

It asks Slurm which jobs run on the node and reclaims the journals of all other jobs.
Run it as HealthCheckProgram and when the node boots. If the node was drained because a
job left something, it is resumed when it is clean.

EXIT STATUS
===========

    0   nothing is left of ended jobs
    1   something is left, or Slurm did not say what runs`,
		Example: "  slurmv-agent clean --node n1",
		Args:    cobra.NoArgs,
		RunE:    func(c *cobra.Command, _ []string) error { return runClean(c, path, node) },
	}
	c.Flags().StringVar(&path, "config", config.Path, "read the configuration from `file`")
	c.Flags().StringVar(&node, "node", os.Getenv("SLURMV_NODE"), "this node's `name` in Slurm")
	return c
}

func runClean(c *cobra.Command, path, name string) error {
	cfg, err := config.Load(path)
	if err != nil {
		return err
	}
	slurmBin = cfg.Slurm.Bin
	node, err := nodeName(name)
	if err != nil {
		return err
	}
	cleaned, err := vmlaunch.Clean(c.Context(), cfg, node, func(ctx context.Context) (map[journal.ID]bool, error) {
		return runningJobs(ctx, node)
	})
	for _, id := range cleaned {
		fmt.Fprintln(c.OutOrStdout(), "reclaimed job", id)
	}
	if err != nil {
		return err
	}
	// Also when there was nothing to do: what the node was drained for may have gone
	// with a start of the same job, or with a clean that failed elsewhere.
	ctx, cancel := context.WithTimeout(c.Context(), scontrolPatience)
	defer cancel()
	return resume(ctx, node)
}

// holdingStates are those of jobs that have their nodes.
const holdingStates = "RUNNING,SUSPENDED,CONFIGURING,COMPLETING,STOPPED,SIGNALING,STAGE_OUT"

// runningJobs asks Slurm for the jobs that have not given up node yet.
func runningJobs(ctx context.Context, node string) (map[journal.ID]bool, error) {
	text, err := runSlurm(ctx, nil, "squeue", "--noheader", "--Format=JobID:.20,RestartCnt:.20", "--states="+holdingStates, "--nodelist="+node)
	if err != nil {
		return nil, err
	}
	jobs := map[journal.ID]bool{}
	for line := range strings.Lines(text) {
		id, err := journal.ParseID(strings.Join(strings.Fields(line), "."))
		if err != nil {
			return nil, fmt.Errorf("squeue answered %q: %w", line, err)
		}
		jobs[id] = true
	}
	return jobs, nil
}

func stderrOf(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) && len(exit.Stderr) > 0 {
		return ": " + strings.TrimSpace(string(exit.Stderr))
	}
	return ""
}
