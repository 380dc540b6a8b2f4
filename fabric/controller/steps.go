package controller

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"github.com/slurm-v/slurm-v/fabric/ledger"
	"github.com/slurm-v/slurm-v/slurm"
)

// releaseSteps releases the multicast addresses of steps that have ended in jobs that go on. Programs
// release theirs themselves, unless they are killed; the next steps of the job would then lack them.
//
// The fabric manager is asked before slurmctld: a step that it names has begun, so if slurmctld does
// not have it any more, it has ended.
func (s sweep) releaseSteps(ctx context.Context, entries []ledger.Entry) error {
	if s.Fabric == nil {
		return nil
	}
	found := map[string][]string{} // by session
	_, err := untilSilent(ctx, inSession(entries), func(ctx context.Context, e ledger.Entry) error {
		session := e.Reservation.Collectives.Session
		steps, err := s.Fabric.Steps(ctx, session)
		if len(steps) > 0 {
			found[session] = steps
		}
		return err
	})
	if err != nil || len(found) == 0 {
		return err
	}
	listed, err := s.activeSteps(ctx)
	if err != nil {
		return fmt.Errorf("ask which steps run: %w", err)
	}
	_, err = untilSilent(ctx, inSession(entries), func(ctx context.Context, e ledger.Entry) error {
		session := e.Reservation.Collectives.Session
		return s.releaseEach(ctx, session, endedSteps(found[session], listed[e.Reservation.Job.Job]))
	})
	return err
}

func (s sweep) releaseEach(ctx context.Context, session string, steps []string) error {
	for _, step := range steps {
		if err := s.Fabric.ReleaseStep(ctx, session, step); err != nil {
			return err
		}
	}
	return nil
}

// activeSteps returns slurmctld's steps. Those of all components of a heterogeneous job count as its
// leader's, which has the session.
func (s sweep) activeSteps(ctx context.Context) (slurm.Steps, error) {
	jobs, err := s.Slurm.AdminComments(ctx)
	if err != nil {
		return nil, err
	}
	steps, err := slurm.ActiveSteps(ctx, s.Slurm.Client)
	for _, job := range jobs {
		if leader := job.HetJob; leader != 0 && leader != job.Job && err == nil {
			steps[leader] = append(steps[leader], steps[job.Job]...)
		}
	}
	return steps, err
}

// inSession returns the jobs that go on and have a session.
func inSession(entries []ledger.Entry) []ledger.Entry {
	return slices.DeleteFunc(slices.Clone(entries), func(e ledger.Entry) bool { return !e.Ended.IsZero() || !told(e.Reservation) })
}

// endedSteps returns those of a job's steps that slurmctld does not list any more. A job of which it
// lists none keeps all: where jobs manage their steps themselves, this one may just not have answered.
// Names that are no step's numbers are of a program that runs others as steps of its own.
func endedSteps(steps, listed []string) (ended []string) {
	for _, step := range steps {
		if len(listed) > 0 && isStep(step) && !slices.Contains(listed, step) {
			ended = append(ended, step)
		}
	}
	return ended
}

// maxStep is the largest number of a step: larger ones stand for batch and such (slurm.h).
const maxStep = 0xfffffff0

func isStep(name string) bool {
	n, err := strconv.ParseUint(name, 10, 32)
	return err == nil && n <= maxStep && strconv.FormatUint(n, 10) == name
}
