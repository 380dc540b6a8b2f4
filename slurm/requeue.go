package slurm

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// RequeueElsewhere puts a running job back into the queue, for nodes other than this one.
// It keeps comment in the job's record, because the job's output file may be overwritten.
// It holds the job until the node is excluded, so that the job does not return to it. ctx
// bounds how long the job's end on this node may take.
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
	if err := updateJob(ctx, c, job.Name, "excnodelist="+withNode(excluded, node), "admincomment="+comment); err != nil {
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

// excluded returns the job's ExcNodeList. Users can set it to any text, as with sbatch
// --exclude.
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
