package prove

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/check"
	"github.com/slurm-v/slurm-v/slurm"
)

// A Prover runs the jobs of a proof.
type Prover struct {
	Request  Request
	OneNode  bool // one node will do if Slurm refuses the number that is asked for
	Config   config.Config
	Client   slurm.Client
	Dir      string // the jobs' directories are made here; all hosts must see it
	UID      int
	Own      []check.Result // see [Evidence]
	Wait     time.Duration  // how long a job may take, with its time in the queue
	Interval time.Duration  // between two questions to slurmctld
	Words    io.Writer      // says what is going on
}

// Prove runs all jobs, one after the other. The error is that of this process; what is
// wrong with the site is in the evidence.
func (p *Prover) Prove(ctx context.Context) (Evidence, error) {
	e := Evidence{Request: p.Request, Config: p.Config, UID: p.UID, Own: p.Own, Outcomes: map[string]Outcome{}}
	nodes, err := p.nodes(ctx, &e)
	if err != nil || len(nodes) == 0 {
		return e, err
	}
	e.Request, e.Without = e.Request.Placed(nodes).Possible(checksOf(e.Outcomes[jobNodes], len(nodes)))
	if err := p.vms(ctx, &e); err != nil {
		return e, err
	}
	return e, p.left(ctx, &e)
}

// nodes examines nodes, which all further jobs are to have.
func (p *Prover) nodes(ctx context.Context, e *Evidence) ([]string, error) {
	done, err := p.run(ctx, e, e.Request.NodesJob())
	if err == nil && done.ID == 0 && p.OneNode && e.Request.Nodes > 1 {
		fmt.Fprintf(p.Words, "slurmv: %s; trying one node\n", done.Refused)
		e.Request.Nodes = 1
		done, err = p.run(ctx, e, e.Request.NodesJob())
	}
	return done.nodes, err
}

// vms runs the jobs with VMs. If VMs do not start, no others are tried.
func (p *Prover) vms(ctx context.Context, e *Evidence) error {
	jobs := []func(config.Config) (Job, error){e.Request.VMJob, e.Request.CancelJob, e.Request.LimitJob}
	if e.Request.Quick {
		jobs = jobs[:2]
	}
	for _, describe := range jobs {
		job, err := describe(p.Config)
		if err == nil {
			_, err = p.run(ctx, e, job)
		}
		if err != nil || judgeStart(e.Request, e.Outcomes[jobVMs]).why != "" {
			return err
		}
	}
	return nil
}

func (p *Prover) left(ctx context.Context, e *Evidence) error {
	var jobs []uint32
	for _, name := range []string{jobVMs, jobCancel, jobLimit} {
		if id := e.Outcomes[name].ID; id > 0 {
			jobs = append(jobs, id)
		}
	}
	if len(jobs) == 0 {
		return nil
	}
	_, err := p.run(ctx, e, e.Request.LeftJob(jobs))
	return err
}

// A watched is a job that was submitted.
type watched struct {
	Outcome
	nodes []string
}

// run submits a job, waits for its end, and adds the outcome to the evidence.
func (p *Prover) run(ctx context.Context, e *Evidence, job Job) (done watched, err error) {
	dir := filepath.Join(p.Dir, job.Name)
	if err := errors.Join(os.MkdirAll(dir, 0o700), os.WriteFile(filepath.Join(dir, "script"), []byte(job.Script), 0o700)); err != nil {
		return done, err
	}
	begin := time.Now()
	done.ID, err = p.Client.Submit(ctx, dir, "script")
	var answered *slurm.CommandError
	switch {
	case errors.As(err, &answered):
		done.Refused, err = refusal(answered.Stderr), nil
	case err != nil:
		return done, err
	default:
		fmt.Fprintf(p.Words, "slurmv: job %d: %s\n", done.ID, purposes[job.Name])
		err = p.await(ctx, job, dir, &done)
	}
	done.Seconds = time.Since(begin).Seconds()
	if err == nil {
		done.Files, err = readFiles(dir)
	}
	e.Outcomes[job.Name] = done.Outcome
	return done, err
}

var purposes = map[string]string{
	jobNodes:  "examines its nodes",
	jobVMs:    "starts VMs, tries everything in them, and measures",
	jobCancel: "has a VM, and is cancelled",
	jobLimit:  "has a VM until its time is up",
	jobLeft:   "looks for what the others have left",
}

// refusal returns the sentences of sbatch's error output, without what Slurm always adds to
// somebody else's.
func refusal(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(strings.TrimPrefix(strings.TrimSpace(line), "sbatch: error:"))
		if line != "" && (len(lines) == 0 || !added(line)) {
			lines = append(lines, line)
		}
	}
	return "sbatch refuses the job: " + strings.Join(lines, " ")
}

func added(line string) bool {
	return slices.ContainsFunc([]string{"spank: ", "Plugin stack ", "Batch job submission failed"}, func(begin string) bool {
		return strings.HasPrefix(line, begin)
	})
}

// await waits for the job's end. It cancels a job that still runs when it is asked after
// the time for which await waits: Slurm's answers may be slow.
func (p *Prover) await(ctx context.Context, job Job, dir string, done *watched) error {
	cancelled := false
	for end := time.Now().Add(p.Wait); ; {
		late := time.Now().After(end)
		if p.over(ctx, done) {
			return nil
		}
		if job.CancelAt != "" && !cancelled && said(dir, job.CancelAt) {
			cancelled = true
			if err := p.Client.Cancel(ctx, done.ID); err != nil {
				return err
			}
		}
		if late {
			done.Refused = fmt.Sprintf("job %d is %s after %v: it was cancelled (--wait waits longer)", done.ID, done.State, p.Wait)
			return p.stop(context.DeadlineExceeded, done.ID)
		}
		select {
		case <-ctx.Done():
			return errors.Join(ctx.Err(), p.stop(ctx.Err(), done.ID))
		case <-time.After(p.Interval):
		}
	}
}

// stop cancels a job that is no longer waited for. The caller's context may have ended.
func (p *Prover) stop(why error, id uint32) error {
	if why == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), slurm.Patience)
	defer cancel()
	return p.Client.Cancel(ctx, id)
}

// over asks Slurm about the job. If Slurm does not answer, it may do so the next time.
func (p *Prover) over(ctx context.Context, done *watched) bool {
	job, err := p.Client.Job(ctx, done.ID)
	if err != nil {
		done.State = err.Error()
		return errors.Is(err, slurm.ErrUnknownJob)
	}
	done.State = job.State
	if job.NodeList != "" && len(done.nodes) == 0 {
		done.nodes, _ = p.Client.Hostnames(ctx, job.NodeList)
	}
	return slurm.Ended(job.State)
}

func said(dir, text string) bool {
	out, _ := os.ReadFile(filepath.Join(dir, output))
	return strings.Contains(string(out), text)
}

// maxFile bounds a file that is read, in bytes.
const maxFile = 4 << 20

// readFiles reads what a job has left. Its programs are not read.
func readFiles(dir string) (Files, error) {
	entries, err := os.ReadDir(dir)
	files := Files{}
	for _, entry := range entries {
		info, infoErr := entry.Info()
		if infoErr != nil || !info.Mode().IsRegular() || info.Size() > maxFile || slices.Contains([]string{"workload", "program"}, entry.Name()) {
			continue
		}
		text, readErr := os.ReadFile(filepath.Join(dir, entry.Name()))
		err = errors.Join(err, readErr)
		files[entry.Name()] = string(text)
	}
	return files, err
}
