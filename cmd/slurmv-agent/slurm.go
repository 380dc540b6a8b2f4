package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"strconv"
	"strings"

	"github.com/slurm-v/slurm-v/internal/program"
)

// slurmBin is [slurm] bin of the configuration that this process goes by.
var slurmBin string

// slurmCommand is a command of Slurm's, by its absolute path.
func slurmCommand(ctx context.Context, name string, args ...string) (*exec.Cmd, error) {
	path, err := program.Find(slurmBin, name)
	if err != nil {
		return nil, fmt.Errorf("%w; where Slurm is installed elsewhere, say so by bin in [slurm] of slurmv.toml", err)
	}
	return exec.CommandContext(ctx, path, args...), nil
}

// runSlurm returns what a command of Slurm's prints.
func runSlurm(ctx context.Context, env []string, name string, args ...string) (string, error) {
	c, err := slurmCommand(ctx, name, args...)
	if err != nil {
		return "", err
	}
	c.Env = env
	out, err := c.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w%s", name, strings.Join(args, " "), err, stderrOf(err))
	}
	return string(out), nil
}

// askSlurm asks as root, with nothing of the user's: a SLURM_CONF of his own
// would name a slurmctld of his own.
func askSlurm(ctx context.Context, name string, args ...string) (string, error) {
	return runSlurm(ctx, []string{"PATH=" + program.Path}, name, args...)
}

// nameFields begin the fields that are asked of squeue about one job.
const nameFields = "jobid:.20|,arrayjobid:.20|,arraytaskid:.20|"

// askRecord returns what squeue says of the job in those further fields, and the name by
// which scontrol finds the job.
func askRecord(ctx context.Context, job uint32, fields string) (name string, values []string, err error) {
	text, err := askSlurm(ctx, "squeue", "--noheader", "--states=all", "--jobs="+strconv.FormatUint(uint64(job), 10), "--Format="+nameFields+","+fields)
	if err != nil {
		return "", nil, err
	}
	name, values, err = recordIn(text, job)
	if err != nil {
		return "", nil, fmt.Errorf("job %d: %w", job, err)
	}
	return name, values, nil
}

var digits = regexp.MustCompile(`^[0-9]+$`)

// recordIn picks the job's line. One task of an array, the last, has the array's number,
// and by that number Slurm lists all tasks of the array. Only the number and the task's
// together name this one to scontrol, whose answer cannot be picked apart: it has texts of
// the user's in it.
func recordIn(text string, job uint32) (name string, values []string, err error) {
	id := strconv.FormatUint(uint64(job), 10)
	for line := range strings.Lines(text) {
		f := strings.Split(strings.TrimRight(line, "\n"), "|")
		for i := range f {
			f[i] = strings.TrimSpace(f[i])
		}
		if len(f) < 4 || f[0] != id {
			continue
		}
		if name != "" {
			return "", nil, errors.New("squeue lists it twice")
		}
		name, values = id, f[3:]
		if digits.MatchString(f[2]) {
			name = f[1] + "_" + f[2]
		}
	}
	if name == "" {
		return "", nil, errors.New("squeue does not list it")
	}
	return name, values, nil
}
