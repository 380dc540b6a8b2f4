package vfpool

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/slurm-v/slurm-v/vfpool/device"
	"github.com/slurm-v/slurm-v/vfpool/lease"
)

// A Stray is a VF that has a tag of jobs, and no lease: whoever removed the lease did not undo it.
type Stray struct {
	VF       device.VF
	Settings device.Settings
}

// Tagged reports whether settings have a tag that only jobs have.
type Tagged func(device.Settings) bool

// ClearStrays takes their tags off the strays, and all else that their jobs had set, and returns those
// that it has cleared; with dryRun, those that it would clear. It goes on after an error. A VF that a
// program has open is left alone.
func (p *Pool) ClearStrays(ctx context.Context, tagged Tagged, dryRun bool) (cleared []Stray, err error) {
	strays, err := p.strays(ctx, tagged)
	if dryRun {
		return strays, err
	}
	for _, s := range strays {
		done, one := p.clear(ctx, s.VF, tagged)
		if one != nil {
			one = fmt.Errorf("clear VF %d of %s, which has a tag of jobs and no lease: %w", s.VF.Index, s.VF.PF, one)
		}
		if done {
			cleared = append(cleared, s)
		}
		err = errors.Join(err, one)
	}
	return cleared, err
}

// strays reads the leases before and after the VFs: jobs begin and end meanwhile.
func (p *Pool) strays(ctx context.Context, tagged Tagged) (strays []Stray, err error) {
	before, err := p.leases.Read()
	if err != nil {
		return nil, err
	}
	found, readErr := p.tagged(ctx, tagged)
	after, err := p.leases.Read()
	if err != nil {
		return nil, errors.Join(readErr, err)
	}
	for _, s := range found {
		if !leased(before, s.VF) && !leased(after, s.VF) {
			strays = append(strays, s)
		}
	}
	return strays, readErr
}

// tagged returns the VFs with a tag, leased or not. It goes on if a VF cannot be read.
func (p *Pool) tagged(ctx context.Context, tagged Tagged) (found []Stray, err error) {
	pfs, err := p.pfs()
	if err != nil {
		return nil, err
	}
	for _, pf := range pfs {
		for _, vf := range pf.VFs {
			s, one := p.backends[vf.Kind].Remains(ctx, vf)
			if one == nil && tagged(s) {
				found = append(found, Stray{vf, s})
			}
			err = errors.Join(err, one)
		}
	}
	return found, err
}

// leased does not count leases from before the last boot, which has reset the VF.
func leased(records []lease.Lease, vf device.VF) bool {
	return slices.ContainsFunc(records, func(r lease.Lease) bool { return !r.OldBoot && r.Key() == lease.KeyOf(vf) })
}

// clear holds the pool's lock, so that no job gets the VF meanwhile, and looks again: a job may have got
// it since.
func (p *Pool) clear(ctx context.Context, vf device.VF, tagged Tagged) (done bool, err error) {
	lock, err := p.leases.Lock(ctx)
	if err != nil {
		return false, err
	}
	defer lock.Unlock()
	held, err := lock.All()
	if err != nil || leased(held, vf) {
		return false, err
	}
	b := p.backends[vf.Kind]
	if now, err := b.Remains(ctx, vf); err != nil || !tagged(now) {
		return false, err
	}
	err = b.Reset(ctx, vf)
	return err == nil, err
}
