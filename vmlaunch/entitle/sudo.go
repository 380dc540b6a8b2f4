package entitle

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm"
	"github.com/slurm-v/slurm-v/slurm/cgroup"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// maxSpec bounds how much of a request is read, in bytes.
const maxSpec = 1 << 20

// ReadSpec reads the request of a user without the plugin from standard input.
func ReadSpec(in io.Reader) (jobspec.Spec, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxSpec))
	if err != nil {
		return jobspec.Spec{}, fmt.Errorf("read the VM options: %w", err)
	}
	return jobspec.Decode(strings.TrimSpace(string(text)))
}

// FromSudo finds out for which job sudo runs this process, and what Slurm says of the job
// on this node. It does not fill in the Spec; see [ReadSpec].
func FromSudo(ctx context.Context, c slurm.Client, env func(string) string) (plan.Job, error) {
	uid, err := sudoUID(env)
	if err != nil {
		return plan.Job{}, err
	}
	step, err := cgroup.StepOf("/proc", os.Getpid())
	if err != nil {
		return plan.Job{}, fmt.Errorf("%w: run it in a step of a job, by srun", err)
	}
	job, err := recordOf(ctx, c, step)
	if err == nil && job.UID != uid {
		err = fmt.Errorf("job %d belongs to user %d, not to user %d", job.ID.Job, job.UID, uid)
	}
	return job, err
}

func sudoUID(env func(string) string) (uint32, error) {
	uid, err := strconv.ParseUint(env("SUDO_UID"), 10, 32)
	if err != nil {
		return 0, errors.New("--task is for users, who run it by sudo: see slurmv launch --help")
	}
	return uint32(uid), nil
}

// recordOf asks slurmctld about the job at step.
func recordOf(ctx context.Context, c slurm.Client, step cgroup.Step) (plan.Job, error) {
	id, err := idOf(ctx, c, step.Job)
	if err != nil {
		return plan.Job{}, err
	}
	record, err := c.Job(ctx, id)
	if err != nil {
		return plan.Job{}, err
	}
	job := plan.Job{
		ID: journal.ID{Job: id, Restart: record.Restarts}, Step: step.StepID,
		UID: record.UID, GID: record.GID, Nodes: record.Nodes,
	}
	names, err := c.Hostnames(ctx, record.NodeList)
	if err != nil {
		return plan.Job{}, err
	}
	if job.Node, err = thisNode(step, names); err != nil {
		return plan.Job{}, fmt.Errorf("job %d: %w", id, err)
	}
	job.Rank = slices.Index(names, job.Node)
	has, err := c.Allocation(ctx, record.Name, job.Node)
	job.CPUs, job.Memory = has.CPUs, has.MiB
	job.VFs, job.VFMbps = ownedVFs(has)
	return job, err
}

// idOf is the job's number, which slurmctld tells if the cgroup does not.
func idOf(ctx context.Context, c slurm.Client, job cgroup.Job) (uint32, error) {
	if id, ok := job.ID(); ok {
		return id, nil
	}
	return c.IDOf(ctx, string(job))
}

// thisNode is the node that the cgroup names. If the cgroup names none, it is the node
// called like this host.
func thisNode(step cgroup.Step, nodes []string) (string, error) {
	name := step.Node
	if name == "" {
		host, err := slurm.HostName()
		if err != nil {
			return "", err
		}
		name = host
	}
	if !slices.Contains(nodes, name) {
		return "", fmt.Errorf("this host, %s, is not one of its nodes (%s)", name, strings.Join(nodes, ", "))
	}
	return name, nil
}
