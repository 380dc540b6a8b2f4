package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/slurm/cgroup"
	"github.com/slurm-v/slurm-v/vmlaunch"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// Without the plugin, users start launch and reclaim by sudo, inside a step of
// their job (slurmv launch, slurmv reclaim). Who they are sudo says, which job
// they are in the cgroup says, and what that job owns slurmctld says. Nothing of
// this comes from an argument or a variable of theirs; only the VMs they ask for
// do, on standard input.

// runTaskLaunch is launch for such a user. It tells the outcome on standard
// output.
func runTaskLaunch(ctx context.Context) error {
	signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE) // the user's process may be gone: no reason to die
	_, _ = unix.Setsid()
	status := newStatus(1)
	node, err := taskLaunch(ctx, status)
	if err != nil {
		status.line("error", err.Error())
		return err
	}
	// A signal to the step is for the programs; they end before their VMs.
	return node.Serve(context.WithoutCancel(ctx), func() {
		status.line("ready", "")
		status.close()
	})
}

func taskLaunch(ctx context.Context, status *status) (*vmlaunch.VMs, error) {
	if err := harden(sudoVariables); err != nil {
		return nil, err
	}
	cfg, err := config.Load(config.Path)
	if err != nil {
		return nil, err
	}
	slurmBin = cfg.Slurm.Bin
	job, err := taskJob(ctx)
	if err != nil {
		return nil, err
	}
	if job.Spec, err = readSpec(os.Stdin); err != nil {
		return nil, err
	}
	if err := toNull(0, 2); err != nil {
		return nil, err
	}
	return launchJob(ctx, cfg, job, status)
}

// maxSpec bounds what is read of a request, in bytes.
const maxSpec = 1 << 20

func readSpec(in io.Reader) (jobspec.Spec, error) {
	text, err := io.ReadAll(io.LimitReader(in, maxSpec))
	if err != nil {
		return jobspec.Spec{}, fmt.Errorf("read the VM options: %w", err)
	}
	return jobspec.Decode(strings.TrimSpace(string(text)))
}

// toNull lets go of the user's streams: the agent may outlive their readers.
func toNull(fds ...int) error {
	null, err := os.OpenFile("/dev/null", os.O_RDWR, 0)
	if err != nil {
		return err
	}
	defer null.Close()
	for _, fd := range fds {
		if err := unix.Dup3(int(null.Fd()), fd, 0); err != nil {
			return err
		}
	}
	return nil
}

// runTaskReclaim gives back what the caller's job holds on this node. Its process is
// hardened already.
func runTaskReclaim(ctx context.Context) error {
	cfg, err := config.Load(config.Path)
	if err != nil {
		return err
	}
	job, err := taskJob(ctx)
	if err != nil {
		return err
	}
	return vmlaunch.Reclaim(ctx, cfg, job.Node, job.ID)
}

// taskJob finds out for which job sudo runs this program, and what Slurm says of
// it on this node.
func taskJob(ctx context.Context) (plan.Job, error) {
	uid, err := sudoUID(os.Getenv)
	if err != nil {
		return plan.Job{}, err
	}
	step, err := cgroup.StepOf("/proc", os.Getpid())
	if err != nil {
		return plan.Job{}, fmt.Errorf("%w: run it in a step of a job, by srun", err)
	}
	job, err := recordOf(ctx, step)
	if err == nil && job.UID != uid {
		err = fmt.Errorf("job %d belongs to user %d, not to user %d", step.JobID, job.UID, uid)
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

// The fields of squeue that no user can write anything of his own into.
const recordFields = "userid:.20|,groupid:.20|,restartcnt:.12|,numnodes:.12|,nodelist:.65536"

// recordOf asks slurmctld about the job at step.
func recordOf(ctx context.Context, step cgroup.Step) (plan.Job, error) {
	slurmName, fields, err := askRecord(ctx, step.JobID, recordFields)
	if err != nil {
		return plan.Job{}, err
	}
	job, nodes, err := parseRecord(fields)
	if err != nil {
		return plan.Job{}, fmt.Errorf("job %d: %w", step.JobID, err)
	}
	job.ID.Job, job.Step = step.JobID, step.StepID
	names, err := hostNames(ctx, nodes)
	if err != nil {
		return plan.Job{}, err
	}
	if job.Node, err = thisNode(step, names); err != nil {
		return plan.Job{}, fmt.Errorf("job %d: %w", step.JobID, err)
	}
	job.Rank = slices.Index(names, job.Node)
	has, err := askAllocation(ctx, slurmName, job.Node)
	job.CPUs, job.Memory, job.VFs, job.VFMbps = has.cpus, has.mib, has.vfs, has.vfMbps
	return job, err
}

func hostNames(ctx context.Context, list string) ([]string, error) {
	text, err := askSlurm(ctx, "scontrol", "show", "hostnames", list)
	return strings.Fields(text), err
}

// thisNode is the node that the cgroup names, or the one that is called like this
// host.
func thisNode(step cgroup.Step, nodes []string) (string, error) {
	name := step.Node
	if name == "" {
		host, err := hostName()
		if err != nil {
			return "", err
		}
		name = host
	}
	if !slices.Contains(nodes, name) {
		return "", fmt.Errorf("this host, %s, is none of its nodes (%s)", name, strings.Join(nodes, ", "))
	}
	return name, nil
}

// parseRecord reads the recordFields.
func parseRecord(f []string) (job plan.Job, nodes string, err error) {
	if len(f) != 5 {
		return job, "", fmt.Errorf("squeue answered %d fields, not 5", len(f))
	}
	var numbers [4]uint32
	for i := range numbers {
		n, err := strconv.ParseUint(f[i], 10, 32)
		if err != nil {
			return job, "", fmt.Errorf("squeue says something else than numbers: %w", err)
		}
		numbers[i] = uint32(n)
	}
	job = plan.Job{
		ID: journal.ID{Restart: numbers[2]}, UID: numbers[0], GID: numbers[1], Nodes: int(numbers[3]),
	}
	return job, f[4], nil
}
