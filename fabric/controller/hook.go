package controller

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/slurm"
)

// WishVariable has a job's wish in PrologSlurmctld and EpilogSlurmctld. Without it they have
// nothing to do.
const WishVariable = slurm.HookPrefix + "SLURMV_FABRIC"

// A Script is PrologSlurmctld or EpilogSlurmctld, which slurmctld runs for one job.
type Script struct {
	Config config.Config
	Warn   func(sentence string)
	// Managers sets the managers that are asked by HTTP; nil if the site has none.
	Managers func(*Controller) error
}

// Prolog gives the job its tags.
func (s Script) Prolog(ctx context.Context) error {
	h, err := slurm.HookOf(os.Getenv)
	if err != nil {
		return err
	}
	w, err := fabric.ParseWish(os.Getenv(WishVariable))
	if err != nil {
		return fmt.Errorf("job %s: %w", h.Name, err)
	}
	c, err := s.open(ctx)
	if err != nil {
		return fmt.Errorf("reserve tags for job %s: %w", h.Name, err)
	}
	_, err = c.Reserve(ctx, h, w)
	return err
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
		return fmt.Errorf("ask for confirmations in the background: %w", err)
	}
	return c.Process.Release()
}

// AsksByHTTP reports whether the site has a manager that is asked by HTTP.
func AsksByHTTP(site config.Fabric) bool { return site.PKey.UFM != "" || site.Collectives.URL != "" }
