package cxi

import (
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sys/unix"
)

// errShort matches the error of [Library.Make] if the card has too little for the job.
var errShort = errors.New("the card has too few resources")

// Made is a job's service, and what the administrator should know of it.
type Made struct {
	Placed
	Warning string // that the job has less than it was to have, and of what; "" if it has everything
}

// Make makes the job's service on a card, or returns the one that it has there. If the
// card has too little, the job gets less, and the warning says so. If that does not fit
// either, the error says what is too little.
func (l *Library) Make(card Device, job Job) (Made, error) {
	services, err := l.Services(card)
	if err != nil {
		return Made{}, job.failed(card, err)
	}
	// A run that was cut off after the driver had made the service left it here.
	if i := slices.IndexFunc(services, job.Owns); i >= 0 {
		return Made{Placed: Placed{card.Name, services[i]}}, nil
	}
	service, err := newService(job, roomBeside(card.Has, services, l.useOfSystem(card, services)))
	if err != nil {
		return Made{}, fmt.Errorf("make a CXI service on %s: %w", card.Name, err)
	}
	return l.makeWithLess(card, job, service)
}

// useOfSystem returns what the system's services use. A use that cannot be read, as with
// an old libcxi, is left out: what the service has reserved counts then.
func (l *Library) useOfSystem(card Device, services []Service) map[uint32]Amounts {
	use := map[uint32]Amounts{}
	for _, s := range services {
		if !s.System {
			continue
		}
		if n, err := l.Use(card, s.ID); err == nil {
			use[s.ID] = n
		}
	}
	return use
}

// makeWithLess asks for the service, and for less as long as the card says of what it has
// too little. Each resource becomes less once, so the attempts come to an end.
func (l *Library) makeWithLess(card Device, job Job, s Service) (Made, error) {
	n := narrowing{limits: *s.Limits}
	for {
		s.Limits = &n.limits
		id, why, err := l.alloc(card, s)
		switch {
		case err == nil:
			s.ID = id
			return Made{Placed{card.Name, s}, job.warning(card, n)}, nil
		case !errors.Is(err, unix.ENOSPC):
			return Made{}, job.failed(card, err)
		case !n.narrow(why):
			return Made{}, job.short(card, n, why)
		}
	}
}

// warning says what the job does not get.
func (j Job) warning(card Device, n narrowing) string {
	if len(n.steps) == 0 {
		return ""
	}
	return fmt.Sprintf("job %s with %s reserves less of %s than its cores call for: %s", j.ID, tags(j.VNIs), card.Name, n.text())
}

func (j Job) failed(card Device, err error) error {
	if errors.Is(err, unix.EPERM) || errors.Is(err, unix.EACCES) {
		err = fmt.Errorf("%w: only root may, on the host that has the card", err)
	}
	return fmt.Errorf("make the CXI service of job %s with %s on %s: %w", j.ID, tags(j.VNIs), card.Name, err)
}

// short is the error of a card that has too little even for less.
func (j Job) short(card Device, n narrowing, why report) error {
	if last, ok := n.step(why); ok {
		n.steps = append(n.steps, last)
	}
	lacks := n.text()
	if why.noCounterSet {
		lacks = "no pool of counters is left"
	}
	if lacks == "" {
		lacks = "the driver does not say of what"
	}
	return j.failed(card, fmt.Errorf("%w, even for less: %s; wait for other jobs, or look for services that nobody needs: "+
		"slurmv fabric list, slurmv fabric clean", errShort, lacks))
}
