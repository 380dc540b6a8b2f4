package slurm

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// RequeueElsewhere sends a running job back into the queue for other nodes than this one,
// and keeps comment in its record: what the job had printed may go with its output file.
// The job is held while it is changed, so that it does not come back before the node is
// excluded. ctx bounds how long it may take to end here.
func (c Client) RequeueElsewhere(ctx context.Context, id uint32, node, comment string) error {
	job, err := c.Job(ctx, id)
	if err != nil {
		return err
	}
	if err := c.control(ctx, "requeuehold", job.Name); err != nil {
		return err
	}
	if err := c.awaitPending(ctx, id); err != nil {
		return err
	}
	excluded, err := c.excluded(ctx, job.Name)
	if err != nil {
		return err
	}
	if err := c.control(ctx, "update", "jobid="+job.Name, "excnodelist="+withNode(excluded, node), "admincomment="+comment); err != nil {
		return err
	}
	return c.control(ctx, "release", job.Name)
}

func (c Client) awaitPending(ctx context.Context, id uint32) error {
	for {
		job, err := c.Job(ctx, id)
		if err != nil || job.State == "PENDING" {
			return err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
			return fmt.Errorf("job %d does not become pending: %w", id, ctx.Err())
		}
	}
}

// excluded returns the job's ExcNodeList. Users can make it say what they like, as with
// sbatch --exclude.
func (c Client) excluded(ctx context.Context, name string) (string, error) {
	text, err := c.Run(ctx, "scontrol", "--oneliner", "show", "job", name)
	return excludedIn(text), err
}

var excludedNodes = regexp.MustCompile(`\bReqNodeList=\S* ExcNodeList=(\S+)`)

// excludedIn reads a line of scontrol show job.
func excludedIn(text string) string {
	found := excludedNodes.FindStringSubmatch(text)
	if found == nil || found[1] == "(null)" {
		return ""
	}
	return found[1]
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
