package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/vfpool"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// Slurm counts VFs and bandwidth by the node, and a job may not fit although the
// sums do: two half-free cards are no whole one. The node itself is well, so it is
// not drained; the job goes elsewhere.

// maxRequeues bounds how often a job is sent elsewhere.
const maxRequeues = 3

// elsewhere sends a job that does not fit on this node back into the queue, if the
// site and the job allow it, and says so in the error.
func elsewhere(ctx context.Context, cfg config.Config, job plan.Job, cause error) error {
	if !errors.Is(cause, vfpool.ErrNoFit) || !cfg.VF.Requeue {
		return cause
	}
	_, record, err := askJob(ctx, job.ID.Job)
	switch {
	case err != nil:
		return errors.Join(cause, err)
	case !record.batch || !record.requeue:
		return fmt.Errorf("%w; it is not sent to other nodes, as it was not submitted by sbatch --requeue", cause)
	case record.restarts >= maxRequeues:
		return fmt.Errorf("%w; it has been sent to other nodes %d times and is not again", cause, record.restarts)
	}
	if err := startRequeue(job, cause); err != nil {
		return errors.Join(cause, err)
	}
	return fmt.Errorf("%w; it goes back into the queue, for other nodes", cause)
}

// A jobRecord is what slurmctld says about a job.
type jobRecord struct {
	batch, requeue, pending bool
	restarts                int
}

// The fields of squeue for a jobRecord. No user can write anything of his own into
// them.
const requeueFields = "batchflag:.8|,requeue:.8|,restartcnt:.12|,state:.20"

// askJob also returns the job's name for scontrol.
func askJob(ctx context.Context, job uint32) (string, jobRecord, error) {
	name, fields, err := askRecord(ctx, job, requeueFields)
	if err != nil {
		return "", jobRecord{}, err
	}
	record, err := parseRequeue(fields)
	if err != nil {
		return "", jobRecord{}, fmt.Errorf("job %d: %w", job, err)
	}
	return name, record, nil
}

// parseRequeue reads the requeueFields.
func parseRequeue(f []string) (jobRecord, error) {
	if len(f) != 4 {
		return jobRecord{}, fmt.Errorf("squeue answered %q", f)
	}
	restarts, err := strconv.Atoi(f[2])
	if err != nil {
		return jobRecord{}, fmt.Errorf("squeue answered %q: %w", f, err)
	}
	return jobRecord{batch: f[0] == "1", requeue: f[1] == "1", restarts: restarts, pending: f[3] == "PENDING"}, nil
}

var excludedNodes = regexp.MustCompile(`\bReqNodeList=\S* ExcNodeList=(\S+)`)

// askExcluded returns the job's ExcNodeList. A user can make it say what he likes,
// as with sbatch --exclude.
func askExcluded(ctx context.Context, name string) (string, error) {
	text, err := askSlurm(ctx, "scontrol", "--oneliner", "show", "job", name)
	if err != nil {
		return "", err
	}
	found := excludedNodes.FindStringSubmatch(text)
	if found == nil || found[1] == "(null)" {
		return "", nil
	}
	return found[1], nil
}

// startRequeue starts slurmv-agent requeue, which outlives this job's processes:
// requeuing kills them, this one too, and so does the end of the script that is told
// of the error.
func startRequeue(job plan.Job, cause error) error {
	return startApart("requeue", "--job", strconv.FormatUint(uint64(job.ID.Job), 10), "--node", job.Node,
		"--reason", cause.Error(), "--slurm-bin", slurmBin)
}

type requeueOptions struct {
	job          uint32
	node, reason string
}

func newRequeue() *cobra.Command {
	var o requeueOptions
	c := &cobra.Command{
		Use:    "requeue --job JOB --node NODE",
		Short:  "Requeue a job that does not fit on this node, for other nodes",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE:   func(c *cobra.Command, _ []string) error { return runRequeue(c.Context(), o) },
	}
	c.Flags().Uint32Var(&o.job, "job", 0, "the job's `id`")
	c.Flags().StringVar(&o.node, "node", "", "the `node` on which the job does not fit")
	c.Flags().StringVar(&slurmBin, "slurm-bin", "", "the `directory` of Slurm's commands")
	c.Flags().StringVar(&o.reason, "reason", "", "the `words` that say why")
	return c
}

// requeuePatience bounds how long a job may take to end here.
const requeuePatience = 10 * time.Minute

// runRequeue holds the job while it is changed, so that it does not come back
// here before this node is excluded. What the job had printed may go with its
// output file, so the reason stays in its record.
func runRequeue(ctx context.Context, o requeueOptions) error {
	if err := standApart(); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, requeuePatience)
	defer cancel()
	name, _, err := askJob(ctx, o.job)
	if err != nil {
		return err
	}
	if err := scontrol(ctx, "requeuehold", name); err != nil {
		return err
	}
	if err := awaitPending(ctx, o.job); err != nil {
		return err
	}
	excluded, err := askExcluded(ctx, name)
	if err != nil {
		return err
	}
	if err := scontrol(ctx, "update", "jobid="+name, "excnodelist="+withNode(excluded, o.node), "admincomment="+adminComment(o)); err != nil {
		return err
	}
	return scontrol(ctx, "release", name)
}

func adminComment(o requeueOptions) string {
	return fmt.Sprintf("slurm-v: not on %s: %s", o.node, o.reason)
}

func awaitPending(ctx context.Context, job uint32) error {
	for {
		_, record, err := askJob(ctx, job)
		if err != nil || record.pending {
			return err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return fmt.Errorf("job %d does not become pending: %w", job, ctx.Err())
		}
	}
}

// withNode adds a node to a list such as n1,n[3-4].
func withNode(list, node string) string {
	if list == "" {
		return node
	}
	if slices.Contains(strings.Split(list, ","), node) {
		return list
	}
	return list + "," + node
}
