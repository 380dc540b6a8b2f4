// Package vfpool leases the virtual functions (VFs) of one node to jobs.
//
// A [Pool] reads what the node has, from SR-IOV network cards and from the bridges
// that the site has declared to be cards, decides which VFs the VMs of a job get,
// writes that down and only then touches them. VFs are never created: the
// administrator sets their number at boot.
//
// Deciding is pure and in package place; it is done for all VMs of a job on the
// node at once. Leases are in package lease: one file per VF, on disk before the
// VF is touched, with what it was before, so that whoever finds it after a crash
// can restore it. What a VF is set to, and how it gets to a VM, is in the packages
// sriov and software. Pools of several processes may share one node.
//
// Bandwidth is taken from the records and never from what the hardware says: a
// minimum that a crash has left behind would count for ever.
package vfpool

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"golang.org/x/sync/errgroup"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vfpool/device"
	"github.com/slurm-v/slurm-v/vfpool/lease"
	"github.com/slurm-v/slurm-v/vfpool/software"
	"github.com/slurm-v/slurm-v/vfpool/sriov"
)

// A backend has the VFs of one kind.
type backend interface {
	// PFs returns what is there.
	PFs() ([]device.PF, error)
	// State returns what the VF is now, to be restored later.
	State(ctx context.Context, vf device.VF) (device.State, error)
	// Apply sets the VF through its PF and checks that it took.
	Apply(ctx context.Context, vf device.VF, want device.Settings) error
	// Attach makes the VF something that a QEMU of owner can open.
	Attach(ctx context.Context, vf device.VF, owner owner.IDs) error
	// Restore undoes Apply and Attach, whatever was done of them.
	Restore(ctx context.Context, vf device.VF, original device.State) error
}

// A Pool is the VFs of one node.
type Pool struct {
	cfg      config.VF
	backends map[device.Kind]backend
	leases   *lease.Store
	step     func(lease.Lease) // for tests: called after each record is written
}

// Open returns the pool of node.
func Open(cfg config.Config, node string) (*Pool, error) {
	return open(cfg, node, sriov.Open("/", sriov.Netlink()))
}

func open(cfg config.Config, node string, cards *sriov.Cards) (*Pool, error) {
	leases, err := lease.Open(filepath.Join(cfg.StateDir(node), "vf"))
	if err != nil {
		return nil, err
	}
	return &Pool{
		cfg:      cfg.VF,
		backends: map[device.Kind]backend{device.SRIOV: cards, device.Software: software.Open(cfg.VF)},
		leases:   leases,
		step:     func(lease.Lease) {},
	}, nil
}

// A Demand is what a job wants of this node: the VFs of all of its VMs.
type Demand struct {
	Job      journal.ID
	Owner    owner.IDs // whom QEMU runs as
	VLAN     uint16    // the job's tag; 0 is none
	Requests []VFRequest
}

// A Grant is a VF that a VM has got.
type Grant struct {
	Request  VFRequest
	VF       device.VF
	Settings device.Settings
	Note     string // what the driver cannot do and is not done, in soft mode
}

// Acquire leases, sets and attaches the VFs of a job: all of them or none. The
// grants are in the order of the requests. An error that is [ErrNoFit] says that
// other nodes may do better. If it fails, call Release.
func (p *Pool) Acquire(ctx context.Context, d Demand) ([]Grant, error) {
	grants, err := p.acquire(ctx, d)
	if err != nil {
		return nil, fmt.Errorf("lease VFs to job %s: %w", d.Job, err)
	}
	return grants, nil
}

func (p *Pool) acquire(ctx context.Context, d Demand) ([]Grant, error) {
	grants, records, err := p.lease(ctx, d)
	if err != nil {
		return nil, err
	}
	each, eachCtx := errgroup.WithContext(ctx)
	for i, r := range records {
		each.Go(func() error { return p.prepare(eachCtx, r, grants[i].Settings, d.Owner) })
	}
	return grants, each.Wait()
}

// lease decides which VFs the job gets and writes it down, under the pool's lock.
// What the hardware has is read before: that takes longer, and does not change with
// who has it.
func (p *Pool) lease(ctx context.Context, d Demand) ([]Grant, []lease.Lease, error) {
	pfs, err := p.pfs()
	if err != nil {
		return nil, nil, err
	}
	lock, err := p.leases.Lock(ctx)
	if err != nil {
		return nil, nil, err
	}
	defer lock.Unlock()
	held, err := holding(lock)
	if err != nil {
		return nil, nil, err
	}
	grants, err := choose(count(p.cfg, pfs, held), d, p.cfg.Mode == config.VFSoft)
	if err != nil {
		return nil, nil, err
	}
	records := make([]lease.Lease, len(grants))
	for i, g := range grants {
		if records[i], err = lock.Put(record(d, g)); err != nil {
			return nil, nil, err
		}
		p.step(records[i])
	}
	return grants, records, nil
}

// holding returns the leases. Those from before the last boot end here: what they
// set has gone with the power, and their jobs with it.
func holding(lock *lease.Locked) (held []lease.Lease, err error) {
	all, err := lock.All()
	for _, r := range all {
		if !r.OldBoot {
			held = append(held, r)
			continue
		}
		if err := lock.Delete(r); err != nil {
			return nil, err
		}
	}
	return held, err
}

// record is the lease of a VF. The rates are those to account for, whatever the
// driver can do.
func record(d Demand, g Grant) lease.Lease {
	want := g.Settings
	want.MinRate, want.MaxRate = g.Request.VF.MinMbps, g.Request.VF.MaxMbps
	return lease.Lease{VF: g.VF, Job: d.Job, VM: g.Request.VM, Index: g.Request.Index, Want: want}
}

// pfs returns what the node has and the site allows, of all kinds.
func (p *Pool) pfs() ([]device.PF, error) {
	var all []device.PF
	for _, kind := range []device.Kind{device.SRIOV, device.Software} {
		pfs, err := p.backends[kind].PFs()
		if err != nil {
			return nil, err
		}
		all = append(all, allowed(p.cfg, pfs)...)
	}
	return all, nil
}

// prepare takes a leased VF to where QEMU can open it. What it was before is on
// disk before it is changed.
func (p *Pool) prepare(ctx context.Context, r lease.Lease, want device.Settings, owner owner.IDs) error {
	b := p.backends[r.VF.Kind]
	unlock, err := p.guard(ctx, r.VF)
	if err != nil {
		return err
	}
	defer unlock()
	original, err := b.State(ctx, r.VF)
	if err != nil {
		return err
	}
	r.Original = &original
	if err := p.advance(&r, lease.Saved); err != nil {
		return err
	}
	if err := b.Apply(ctx, r.VF, want); err != nil {
		return err
	}
	if err := p.advance(&r, lease.Applied); err != nil {
		return err
	}
	if err := b.Attach(ctx, r.VF, owner); err != nil {
		return err
	}
	return p.advance(&r, lease.Attached)
}

// guard keeps other jobs away from what the VFs of a software PF share: the first
// makes it and the last removes it. The VFs of a card share nothing of the kind.
func (p *Pool) guard(ctx context.Context, vf device.VF) (unlock func(), err error) {
	if vf.Kind != device.Software {
		return func() {}, nil
	}
	lock, err := p.leases.Lock(ctx)
	if err != nil {
		return nil, err
	}
	return lock.Unlock, nil
}

func (p *Pool) advance(r *lease.Lease, step lease.Phase) error {
	r.Phase = step
	if err := p.leases.Update(*r); err != nil {
		return err
	}
	p.step(*r)
	return nil
}

// Release restores and gives back the VFs that the job has, in whatever state
// they are. It may be called at any time and any number of times. A VF that
// cannot be restored stays the job's, says so in [Pool.List], and is in the error.
func (p *Pool) Release(ctx context.Context, job journal.ID) error {
	records, err := p.leases.Read()
	if err != nil {
		return err
	}
	var each errgroup.Group
	failed := make([]error, len(records))
	for i, r := range records {
		if r.Job != job {
			continue
		}
		each.Go(func() error { failed[i] = p.giveBack(ctx, r); return nil })
	}
	_ = each.Wait()
	return errors.Join(failed...)
}

func (p *Pool) giveBack(ctx context.Context, r lease.Lease) error {
	if err := p.restore(ctx, &r); err != nil {
		r.Quarantine = err.Error()
		return errors.Join(err, p.leases.Update(r))
	}
	lock, err := p.leases.Lock(ctx)
	if err != nil {
		return err
	}
	defer lock.Unlock()
	return lock.Delete(r)
}

// restore undoes prepare. A reboot has undone it already, and before Saved there
// is nothing to undo.
func (p *Pool) restore(ctx context.Context, r *lease.Lease) error {
	if r.OldBoot || r.Original == nil {
		return nil
	}
	unlock, err := p.guard(ctx, r.VF)
	if err != nil {
		return err
	}
	defer unlock()
	if err := p.advance(r, lease.Releasing); err != nil {
		return err
	}
	return p.backends[r.VF.Kind].Restore(ctx, r.VF, *r.Original)
}

// ReleaseOrphans gives back the VFs of jobs that live says are none, and returns
// those jobs. live is asked after the records are read, so that a job which is
// just starting is not taken for one that has ended.
func (p *Pool) ReleaseOrphans(ctx context.Context, live func(journal.ID) bool) (released []journal.ID, err error) {
	records, err := p.leases.Read()
	if err != nil {
		return nil, err
	}
	seen := map[journal.ID]bool{}
	for _, r := range records {
		if seen[r.Job] || r.Job.Job == 0 || live(r.Job) {
			continue
		}
		seen[r.Job] = true
		if e := p.Release(ctx, r.Job); e != nil {
			err = errors.Join(err, fmt.Errorf("give back the VFs of job %s: %w", r.Job, e))
			continue
		}
		released = append(released, r.Job)
	}
	return released, err
}
