package cxi

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/journal"
)

// A BusyError says that services are still in use: processes have the cards open, or the
// card is still completing what they had begun.
type BusyError struct {
	Job  journal.ID // whose services they are; zero if nobody knows
	Left []Placed
}

// Error reads as the reason of a drained node does: "job 4217's VNI 1027 is still in use
// on cxi1".
func (e *BusyError) Error() string {
	var vnis []fabric.Tag
	var cards []string
	for _, s := range e.Left {
		vnis = append(vnis, s.VNIs...)
		cards = append(cards, s.Card)
	}
	slices.Sort(vnis)
	slices.SortFunc(cards, byNumber)
	vnis = slices.Compact(vnis)
	is, owner := "is", ""
	if len(vnis) > 1 {
		is = "are"
	}
	if e.Job.Job != 0 {
		owner = fmt.Sprintf("job %d's ", e.Job.Job)
	}
	return fmt.Sprintf("%s%s %s still in use on %s", owner, tags(vnis), is, enumerate(slices.Compact(cards)))
}

// Remove destroys the job's services on all cards of the node, and reads back that they
// are gone. It tries at least once; while they are busy it tries again every second, until
// ctx ends, and then returns a [*BusyError]. All other errors end it at once. A job without
// services is no error.
//
// The cards of these names must be among those that are looked at. libcxi passes over
// cards that it cannot open, and what is on them is not gone.
func (l *Library) Remove(ctx context.Context, job Job, cards []string) error {
	left, err := l.remove(ctx, cards, func(s Placed) bool { return job.Owns(s.Service) })
	if len(left) > 0 {
		err = errors.Join(&BusyError{job.ID, left}, err)
	}
	if err != nil {
		return fmt.Errorf("remove the CXI services of job %s: %w", job.ID, err)
	}
	return nil
}

// Clean destroys the services, such as those that [Stray] returns, as Remove does those of
// a job. A service that has become another one since it was listed stays, and so does one
// of the system.
func (l *Library) Clean(ctx context.Context, services []Placed) error {
	var cards []string
	for _, s := range services {
		cards = append(cards, s.Card)
	}
	left, err := l.remove(ctx, cards, func(s Placed) bool { return !s.kept() && slices.ContainsFunc(services, s.same) })
	if len(left) > 0 {
		err = errors.Join(&BusyError{Left: left}, err)
	}
	if err != nil {
		return fmt.Errorf("remove CXI services: %w", err)
	}
	return nil
}

// remove destroys what is among the services of all cards, and returns what is still busy.
func (l *Library) remove(ctx context.Context, cards []string, is func(Placed) bool) (busy []Placed, err error) {
	for {
		busy, err = l.removeOnce(cards, is)
		if err != nil || len(busy) == 0 || !sleep(ctx, l.pause) {
			return busy, err
		}
	}
}

// sleep returns false if ctx ends first.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return ctx.Err() == nil
	}
}

// removeOnce goes on to the next card after an error: what can be freed is freed.
func (l *Library) removeOnce(cards []string, is func(Placed) bool) (busy []Placed, err error) {
	devices, err := l.Devices()
	if err != nil {
		return nil, err
	}
	err = missing(devices, cards)
	for _, card := range devices {
		left, e := l.removeFrom(card, is)
		busy, err = append(busy, left...), errors.Join(err, e)
	}
	return busy, err
}

// missing is the error for cards that are to be there and are not.
func missing(devices []Device, cards []string) error {
	var names []string
	for _, d := range devices {
		names = append(names, d.Name)
	}
	for _, card := range cards {
		if !slices.Contains(names, card) {
			return fmt.Errorf("%s is not among the cards that libcxi can open (%s), so what is on it cannot be removed; restart the card's driver or the node",
				card, strings.Join(names, ", "))
		}
	}
	return nil
}

// removeFrom destroys services on one card. What the card lists afterwards decides whether
// they are gone, not what the driver answered: it says EINVAL of one that is not there
// (cxi_svc_destroy in shs-cxi-driver's cass_svc.c).
func (l *Library) removeFrom(card Device, is func(Placed) bool) (busy []Placed, err error) {
	found, err := l.matching(card, is)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	answers := map[uint32]error{}
	for _, s := range found {
		answers[s.ID] = l.destroy(card, s.ID)
	}
	left, err := l.matching(card, is)
	for _, s := range left {
		switch answer, tried := answers[s.ID]; {
		case !tried || isBusy(answer): // or it was made just now, and is to be tried the next time
			busy = append(busy, s)
		case answer == nil:
			err = errors.Join(err, fmt.Errorf("CXI service %d with %s is still listed on %s after it was destroyed; restart the node", s.ID, tags(s.VNIs), s.Card))
		default:
			err = errors.Join(err, fmt.Errorf("destroy CXI service %d with %s on %s: %w", s.ID, tags(s.VNIs), s.Card, answer))
		}
	}
	return busy, err
}

func isBusy(err error) bool { return errors.Is(err, unix.EBUSY) || errors.Is(err, unix.EAGAIN) }

func (l *Library) matching(card Device, is func(Placed) bool) (found []Placed, err error) {
	services, err := l.Services(card)
	for _, s := range services {
		if p := (Placed{card.Name, s}); is(p) {
			found = append(found, p)
		}
	}
	return found, err
}
