package slurm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Comments is a client for the comments of jobs and nodes at slurmctld. Only administrators,
// and programs that act for them, write these.
type Comments struct{ Client }

// A NotedJob is a job and the AdminComment that administrators, and programs that act for
// them, have noted on it. No user can write anything of their own into it.
type NotedJob struct {
	Job, Restart uint32
	Name         string    // with which scontrol finds this job alone: 4217, 4216_3 for a task of an array, 4216+1 for a component of a heterogeneous job
	HetJob       uint32    // the number of the first component of a heterogeneous job; 0 for other jobs
	State        string    // such as RUNNING
	Start        time.Time // when it got its nodes; zero if it has none
	NodeList     string    // such as n[1-4], for [Client.Hostnames]; "" before it has nodes
	AdminComment string
}

// notedFields are squeue's fields of a NotedJob. With the width 0, squeue prints the whole
// value and no blanks. The comment comes last: it may contain anything.
const notedFields = "jobid:0|,jobarrayid:0|,hetjobid:0|,restartcnt:0|,state:0|,starttime:0|,nodelist:0|,admin_comment:0"

// visible makes squeue and sinfo say everything. Without --all, a SlurmUser that is not
// root does not see hidden partitions, and users do not see their own steps there. Without
// --local, a member of a federation may list the jobs of other clusters.
var visible = []string{"--noheader", "--all", "--local"}

// AdminComment returns a job with its AdminComment.
func (c Comments) AdminComment(ctx context.Context, id uint32) (NotedJob, error) {
	jobs, err := c.noted(ctx, "--states=all", "--jobs="+decimal(id))
	if err != nil {
		return NotedJob{}, fmt.Errorf("AdminComment of job %d: %w", id, err)
	}
	jobs = slices.DeleteFunc(jobs, func(j NotedJob) bool { return j.Job != id })
	if len(jobs) != 1 {
		return NotedJob{}, fmt.Errorf("AdminComment of job %d: squeue lists it %d times", id, len(jobs))
	}
	return jobs[0], nil
}

// AdminComments returns all jobs that occupy nodes, with their AdminComments.
func (c Comments) AdminComments(ctx context.Context) ([]NotedJob, error) {
	jobs, err := c.noted(ctx, "--states="+holdingStates)
	if err != nil {
		return nil, fmt.Errorf("AdminComments of all jobs: %w", err)
	}
	return jobs, nil
}

// oneJob matches the name of a single job. The name of an array that waits is 4216_[4-9%2].
var oneJob = regexp.MustCompile(`^[0-9]+([_+][0-9]+)?$`)

// SetAdminComment replaces the AdminComment of the job. Only root and SlurmUser may. The name
// matters: by the number that an array and its last task share, or that a heterogeneous job
// and its first component share, scontrol would update all tasks or components.
func (c Comments) SetAdminComment(ctx context.Context, job NotedJob, text string) error {
	if !oneJob.MatchString(job.Name) {
		return fmt.Errorf("AdminComment of job %d: %q is not the name of a single job", job.Job, job.Name)
	}
	return updateJob(ctx, c.Client, job.Name, "admincomment="+text)
}

func (c Comments) noted(ctx context.Context, which ...string) ([]NotedJob, error) {
	end := newMark()
	args := slices.Concat(visible, which, []string{"--Format=" + notedFields + end})
	text, err := c.inSeconds().Run(ctx, "squeue", args...)
	if err != nil {
		return nil, err
	}
	return parseNoted(text, end)
}

// newMark returns what ends a record. Nobody can have written it into a comment.
func newMark() string { return "|" + rand.Text() }

// inSeconds returns a client whose commands print times as seconds since 1970. The local
// times that they print otherwise are not unique in autumn.
func (c Client) inSeconds() Client {
	if c.Env == nil {
		c.Env = pathOnly()
	}
	c.Env = append(slices.Clip(c.Env), timeFormat+"=%s")
	return c
}

// parseNoted reads records of notedFields that each end by the mark.
func parseNoted(text, end string) (jobs []NotedJob, err error) {
	for record := range strings.SplitAfterSeq(text, end+"\n") {
		if record == "" {
			break
		}
		body, whole := strings.CutSuffix(record, end+"\n")
		job, err := parseNotedJob(strings.SplitN(body, "|", 8))
		if err != nil || !whole {
			return nil, fmt.Errorf("squeue lists a job in words that are not understood: %.200q", record)
		}
		jobs = append(jobs, job)
	}
	return jobs, nil
}

func parseNotedJob(f []string) (NotedJob, error) {
	if len(f) != 8 {
		return NotedJob{}, errors.New("too few fields")
	}
	id, err1 := strconv.ParseUint(f[0], 10, 32)
	restart, err2 := strconv.ParseUint(f[3], 10, 32)
	start, err3 := parseSeconds(f[5])
	het, err4 := parseHetJob(f[2])
	job := NotedJob{
		Job: uint32(id), Restart: uint32(restart), Name: f[1], HetJob: het,
		State: f[4], Start: start, NodeList: value(f[6]), AdminComment: value(f[7]),
	}
	return job, errors.Join(err1, err2, err3, err4)
}

func parseHetJob(text string) (uint32, error) {
	if text == "N/A" {
		return 0, nil
	}
	id, err := strconv.ParseUint(text, 10, 32)
	return uint32(id), err
}

// value returns a text of squeue or sinfo. They print a text that is missing as "(null)".
func value(text string) string {
	if text == "(null)" {
		return ""
	}
	return text
}

// parseSeconds reads a time in seconds since 1970; the zero time if there is none.
func parseSeconds(text string) (time.Time, error) {
	if slices.Contains([]string{"N/A", "None", "Unknown", "0"}, text) {
		return time.Time{}, nil
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil || seconds < 0 {
		return time.Time{}, fmt.Errorf("%q is no time in seconds since 1970", text)
	}
	return time.Unix(seconds, 0), nil
}
