package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/slurm"
)

// A Script is PrologSlurmctld or EpilogSlurmctld, which slurmctld runs for one job.
type Script struct {
	Config config.Config
	Warn   func(sentence string)
	// Managers sets the managers that are asked by HTTP; nil if the site has none.
	Managers func(*Controller) error
}

// Prolog gives the job its tags. If it cannot, the job's owner can read why. sweep is the command
// line of a process that gives back the multicast addresses of the job's steps; jobs without have
// none.
func (s Script) Prolog(ctx context.Context, sweep []string) error {
	c, h, w, err := s.prepare(ctx)
	if err != nil {
		return s.Refuse(ctx, err)
	}
	r, err := c.Reserve(ctx, h, w)
	if err == nil && told(r) {
		if err := inBackground(sweep); err != nil {
			c.warn("job %s: %v", r.Job, err) // its steps lack addresses at worst
		}
	}
	return err
}

// prepare finds out which job this is about, and what it wants.
func (s Script) prepare(ctx context.Context) (c *Controller, h slurm.Hook, w fabric.Wish, err error) {
	if h, err = slurm.HookOf(os.Getenv); err != nil {
		return c, h, w, err
	}
	if w, err = fabric.ParseWish(os.Getenv(fabric.WishVariable)); err == nil {
		c, err = s.open(ctx)
	}
	if err != nil {
		err = fmt.Errorf("reserve tags for job %s: %w", h.Name, err)
	}
	return c, h, w, err
}

// Refuse shows the owner of the job for which slurmctld runs this script why it does not start,
// and returns that error. It needs the job's number and Slurm's commands, whatever else is wrong.
func (s Script) Refuse(ctx context.Context, why error) error {
	job, err := strconv.ParseUint(os.Getenv(slurm.EnvJobID), 10, 32)
	if err != nil {
		return why
	}
	c := &Controller{Slurm: commentsOf(s.Config), Warn: s.Warn}
	h := slurm.Hook{Record: slurm.RunID{Job: uint32(job)}}
	giving{c, h, c.readComment(ctx, h)}.explain(ctx, why)
	return why
}

// Epilog takes the job's tags back. sweep is the command line of a process that asks for the
// confirmations: it outlives this one, because the job is completing until this one ends.
func (s Script) Epilog(ctx context.Context, sweep []string) error {
	h, err := slurm.HookOf(os.Getenv)
	if err != nil {
		return err
	}
	c, err := s.open(ctx)
	if err != nil {
		return fmt.Errorf("release the tags of job %s: %w", h.Name, err)
	}
	return errors.Join(c.Release(ctx, h), inBackground(sweep))
}

// Sweep asks for the confirmations, in the process that Epilog starts.
func (s Script) Sweep(ctx context.Context) error {
	c, err := s.open(ctx)
	if err != nil {
		return err
	}
	return c.SweepUntilQuiet(ctx)
}

func (s Script) open(ctx context.Context) (*Controller, error) {
	c, err := Open(ctx, s.Config, s.Warn)
	if err == nil && s.Managers != nil {
		err = s.Managers(c)
	}
	return c, err
}

// inBackground starts a process with a session of its own. slurmctld reads the streams of its
// scripts to their end, so the process has others.
func inBackground(line []string) error {
	c := exec.Command(line[0], line[1:]...)
	c.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	c.Dir = "/"
	if err := c.Start(); err != nil {
		return fmt.Errorf("start what goes on in the background: %w", err)
	}
	return c.Process.Release()
}

// AsksByHTTP reports whether the site has a manager that is asked by HTTP.
func AsksByHTTP(site config.Fabric) bool { return site.PKey.UFM != "" || site.Collectives.URL != "" }
