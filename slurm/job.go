package slurm

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A Job is what slurmctld says of a job. No user can write anything of their own into it.
type Job struct {
	Name     string // with which scontrol finds the job: 4217, or 4216_3 for a task of an array
	UID, GID uint32
	Restarts uint32 // how often it was requeued
	Nodes    int
	NodeList string // such as n[1-4], for [Client.Hostnames]; "" before it has nodes
	Batch    bool   // submitted by sbatch
	Requeue  bool   // may be requeued
	State    string // such as RUNNING
}

// jobFields are the fields of a Job that follow the name fields. The list of nodes may be
// long.
const (
	nameFields = "jobid:.20|,arrayjobid:.20|,arraytaskid:.20|"
	jobFields  = "userid:.20|,groupid:.20|,restartcnt:.12|,numnodes:.12|,batchflag:.8|,requeue:.8|,state:.20|,nodelist:.65536"
)

// Job asks slurmctld about one job.
func (c Client) Job(ctx context.Context, id uint32) (Job, error) {
	text, err := c.Run(ctx, "squeue", "--noheader", "--states=all", "--jobs="+decimal(id), "--Format="+nameFields+","+jobFields)
	if err != nil {
		return Job{}, err
	}
	job, err := parseJob(text, id)
	if err != nil {
		return Job{}, fmt.Errorf("job %d: %w", id, err)
	}
	return job, nil
}

// IDOf asks slurmctld for the number of the job with a SLUID (Slurm 26.05 or newer).
func (c Client) IDOf(ctx context.Context, sluid string) (uint32, error) {
	text, err := c.Run(ctx, "squeue", "--noheader", "--states=all", "--jobs="+sluid, "--Format=jobid:.20")
	if err != nil {
		return 0, err
	}
	id, err := strconv.ParseUint(strings.TrimSpace(text), 10, 32)
	if err != nil {
		return 0, fmt.Errorf("squeue does not say one number for job %s: %w", sluid, err)
	}
	return uint32(id), nil
}

func decimal(n uint32) string { return strconv.FormatUint(uint64(n), 10) }

// parseJob reads the job's record among the lines of nameFields and jobFields.
func parseJob(text string, id uint32) (Job, error) {
	name, f, err := recordIn(text, id)
	if err != nil {
		return Job{}, err
	}
	if len(f) != 8 {
		return Job{}, fmt.Errorf("squeue answered %d fields, not 8", len(f))
	}
	var numbers [4]uint32
	for i := range numbers {
		n, err := strconv.ParseUint(f[i], 10, 32)
		if err != nil {
			return Job{}, fmt.Errorf("squeue says something else than numbers: %w", err)
		}
		numbers[i] = uint32(n)
	}
	return Job{
		Name: name, UID: numbers[0], GID: numbers[1], Restarts: numbers[2], Nodes: int(numbers[3]),
		Batch: f[4] == "1", Requeue: f[5] == "1", State: f[6], NodeList: f[7],
	}, nil
}

var errNotListed = errors.New("squeue does not list it")

var digits = regexp.MustCompile(`^[0-9]+$`)

// recordIn finds the job's line and returns the values after the name fields, and the
// job's name for scontrol. Slurm gives the last task of an array the array's own number,
// and lists all tasks of the array under it. So such a task is named ARRAY_TASK:
// scontrol's answer for the number alone would contain all tasks, mixed with texts that
// users wrote.
func recordIn(text string, job uint32) (name string, values []string, err error) {
	id := decimal(job)
	for line := range strings.Lines(text) {
		f := fields(line, -1)
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
		return "", nil, errNotListed
	}
	return name, values, nil
}

// fields splits a line of squeue into n fields, of which the last takes the rest of the
// line; -1 splits all.
func fields(line string, n int) []string {
	f := strings.SplitN(strings.TrimRight(line, "\n"), "|", n)
	for i := range f {
		f[i] = strings.TrimSpace(f[i])
	}
	return f
}

// holdingStates are the states of jobs that occupy their nodes.
const holdingStates = "RUNNING,SUSPENDED,CONFIGURING,COMPLETING,STOPPED,SIGNALING,STAGE_OUT,RESIZING"

// A RunID is one run of a job: a job that was requeued has several.
type RunID struct{ Job, Restart uint32 }

// JobsOn returns the jobs that still occupy the node.
func (c Client) JobsOn(ctx context.Context, node string) ([]RunID, error) {
	text, err := c.Run(ctx, "squeue", "--noheader", "--Format=JobID:.20,RestartCnt:.20", "--states="+holdingStates, "--nodelist="+node)
	if err != nil {
		return nil, err
	}
	return parseRuns(text)
}

func parseRuns(text string) (runs []RunID, err error) {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) != 2 {
			return nil, fmt.Errorf("squeue answered %q: that is no job and its restarts", line)
		}
		job, err1 := strconv.ParseUint(f[0], 10, 32)
		restart, err2 := strconv.ParseUint(f[1], 10, 32)
		if err := errors.Join(err1, err2); err != nil {
			return nil, fmt.Errorf("squeue answered %q: %w", line, err)
		}
		runs = append(runs, RunID{uint32(job), uint32(restart)})
	}
	return runs, nil
}

// State returns a job's state, such as RUNNING; "" if squeue does not list the job.
func (c Client) State(ctx context.Context, id uint32) (string, error) {
	text, err := c.Run(ctx, "squeue", "--noheader", "--states=all", "--jobs="+decimal(id), "--Format="+nameFields+",state:.32")
	if err != nil {
		return "", err
	}
	_, f, err := recordIn(text, id)
	switch {
	case errors.Is(err, errNotListed):
		return "", nil
	case err != nil:
		return "", err
	}
	return f[0], nil
}

// Over reports whether a job in this state will not run steps any more. No state at all
// means that Slurm has forgotten the job.
func Over(state string) bool {
	switch strings.TrimSpace(state) {
	case "RUNNING", "SUSPENDED", "CONFIGURING", "RESIZING", "SIGNALING", "STOPPED":
		return false
	}
	return true
}

// Lives reports whether a job in this state runs, or waits for its next run. One that is
// completing may do either, or have ended.
func Lives(state string) bool {
	return !Over(state) || slices.Contains([]string{"PENDING", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT"}, strings.TrimSpace(state))
}

// Ended reports whether a job in this state has ended and given back its nodes. No state at
// all means that Slurm has forgotten the job.
func Ended(state string) bool {
	return state == "" || slices.Contains([]string{
		"BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "REVOKED", "TIMEOUT",
	}, state)
}

// Submit submits the batch script in dir, which becomes the job's working directory, and
// returns the job's number.
func (c Client) Submit(ctx context.Context, dir, script string, options ...string) (uint32, error) {
	args := append([]string{"--parsable", "--chdir=" + dir}, options...)
	text, err := c.Run(ctx, "sbatch", append(args, filepath.Join(dir, script))...)
	if err != nil {
		return 0, err
	}
	number, _, _ := strings.Cut(strings.TrimSpace(text), ";") // with several clusters the cluster's name follows
	id, err := strconv.ParseUint(number, 10, 32)
	if err != nil {
		return 0, fmt.Errorf("sbatch answered %q: that is no job id", text)
	}
	return uint32(id), nil
}

// Cancel ends a job.
func (c Client) Cancel(ctx context.Context, id uint32) error {
	_, err := c.Run(ctx, "scancel", decimal(id))
	return err
}
