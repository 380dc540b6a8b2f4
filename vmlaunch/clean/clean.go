// Package clean gives back what ended jobs left: on a node, and in the site's cloud.
package clean

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/slurm-v/slurm-v/config"
	fabricnode "github.com/slurm-v/slurm-v/fabric/node"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/vmlaunch"
	"github.com/slurm-v/slurm-v/vmlaunch/drain"
	"github.com/slurm-v/slurm-v/vmlaunch/tags"
)

// A Node is a node to clean. It says on Out what it has given back, and warns on Words.
type Node struct {
	Config     config.Config
	Client     slurm.Client
	Name       string // in Slurm
	Out, Words io.Writer
}

const (
	busyPatience   = 5 * time.Second  // for CXI services that are in use
	filePatience   = 10 * time.Second // for the files of ended jobs
	healthPatience = 55 * time.Second // for all, in a health check: slurmd kills it after 60 s, and nobody reads then what is left
)

// All cleans the node, resumes it if Slurm-V drained it and nothing is left, and then cleans
// the cloud. Files go last: they harm nobody. What a health check does not reach in time is for the next one.
func (n Node) All(ctx context.Context) error {
	ctx, cancel := inTime(ctx, "/proc")
	defer cancel()
	return n.all(ctx)
}

// inTime ends before slurmd kills this process, if it does.
func inTime(ctx context.Context, proc string) (context.Context, context.CancelFunc) {
	if !isHealthCheck(proc) {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, healthPatience, fmt.Errorf("a health check ends after %v, and the next one goes on", healthPatience))
}

func (n Node) all(ctx context.Context) error {
	err := n.own(ctx)
	if err != nil && ctx.Err() != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	n.cloud(ctx)
	vmlaunch.EmptyTrash(ctx, n.Config, n.Name, filePatience)
	return err
}

func (n Node) own(ctx context.Context) error {
	cleaned, err := vmlaunch.Clean(ctx, n.Config, n.Name, n.running)
	n.sayReclaimed(cleaned)
	if err := errors.Join(err, n.Fabric(ctx, fabricnode.Cleaning{Patience: busyPatience})); err != nil {
		return err
	}
	// Resume the node even if nothing was reclaimed now: a later start of the same job, or
	// an earlier clean that failed afterwards, may have removed the reason for the drain.
	return drain.Resume(ctx, n.Client, n.Name)
}

// cloud comes last and fails nothing. What the cloud does not remove is of any node's jobs, and
// every node finds it: if it counted as this node's, one stuck server would keep all nodes from
// registering, and those that are drained from being resumed. What this node's own jobs left
// there is in their journals, and counts.
func (n Node) cloud(ctx context.Context) {
	asks, err := n.asksCloud(ctx, "/proc")
	if asks {
		var cleaned []journal.ID
		cleaned, err = vmlaunch.CleanCloud(ctx, n.Config, n.Client.ActiveRuns)
		n.sayReclaimed(cleaned)
	}
	if err != nil {
		fmt.Fprintln(n.Words, "warning: something of ended jobs may be left in OpenStack:", err)
	}
}

// Fabric removes what ended jobs left of their tags on the node.
func (n Node) Fabric(ctx context.Context, how fabricnode.Cleaning) error {
	done, err := tags.Clean(ctx, n.Config, n.Name, n.Client, how, n.running)
	for _, what := range done {
		fmt.Fprintln(n.Out, what)
	}
	return err
}

func (n Node) sayReclaimed(jobs []journal.ID) {
	for _, id := range jobs {
		fmt.Fprintln(n.Out, "reclaimed job", id)
	}
}

// running returns the jobs that have not given up the node yet.
func (n Node) running(ctx context.Context) (map[journal.ID]bool, error) {
	runs, err := n.Client.JobsOn(ctx, n.Name)
	jobs := map[journal.ID]bool{}
	for _, run := range runs {
		jobs[journal.ID(run)] = true
	}
	return jobs, err
}
