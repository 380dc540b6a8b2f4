package vfpool

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/vfpool/device"
	"github.com/slurm-v/slurm-v/vfpool/lease"
)

// A Creation says what Create did to a PF.
type Creation struct {
	PF  string
	Did string // such as "made 8 VFs"; "" if Err is set
	Err error  // why it was left as it is
}

// Create makes the VFs that the site wants of each PF of a card. It may be called at any
// time and any number of times: it leaves a PF alone that has as many as wanted, or whose
// VFs a job has. No job gets VFs meanwhile.
func (p *Pool) Create(ctx context.Context) ([]Creation, error) {
	lock, err := p.leases.Lock(ctx)
	if err != nil {
		return nil, err
	}
	defer lock.Unlock()
	held, err := holding(lock)
	if err != nil {
		return nil, err
	}
	pfs, err := p.cards.PFs()
	if err != nil {
		return nil, err
	}
	var all []Creation
	for _, name := range toCreate(p.cfg) {
		all = append(all, p.createOn(name, pfs, held))
	}
	return all, nil
}

// toCreate returns the PFs of which the site wants VFs made.
func toCreate(cfg config.VF) (names []string) {
	for _, name := range slices.Concat(cfg.PFs, cfg.CreatedPFs()) {
		if cfg.CreateOf(name) > 0 && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// createOn makes the VFs of one PF. The configuration is the same on all nodes, so it is
// no error if a node has no such PF.
func (p *Pool) createOn(name string, pfs []device.PF, held []lease.Lease) Creation {
	at := slices.IndexFunc(pfs, func(pf device.PF) bool { return pf.Name == name })
	if at < 0 {
		return Creation{PF: name, Did: "is no network interface with SR-IOV on this node"}
	}
	n, pf := p.cfg.CreateOf(name), pfs[at]
	if len(pf.VFs) != n {
		if jobs := holders(pf, held); len(jobs) > 0 {
			return Creation{PF: name, Err: fmt.Errorf("it has %d VFs and is to have %d; some are leased to job %s: run this again when it has ended (slurmv vf list)", len(pf.VFs), n, strings.Join(jobs, ", "))}
		}
	}
	made, err := p.cards.Create(pf, n)
	switch {
	case err != nil:
		return Creation{PF: name, Err: err}
	case made:
		return Creation{PF: name, Did: fmt.Sprintf("made %d VFs", n)}
	}
	return Creation{PF: name, Did: fmt.Sprintf("has its %d VFs", n)}
}

// holders returns the jobs that have VFs of a PF.
func holders(pf device.PF, held []lease.Lease) (jobs []string) {
	for _, vf := range pf.VFs {
		for _, l := range held {
			if job := l.Job.String(); l.Key() == lease.KeyOf(vf) && !slices.Contains(jobs, job) {
				jobs = append(jobs, job)
			}
		}
	}
	return jobs
}
