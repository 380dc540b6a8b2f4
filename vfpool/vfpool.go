// Package vfpool leases the virtual functions (VFs) of one node to jobs.
//
// A [Pool] reads which VFs the node has, from SR-IOV network cards and from the bridges
// that the site has declared to be physical functions. It decides which VFs the VMs of a
// job get, records that, and only then touches them. It makes VFs of cards only when the
// administrator says so: [Pool.Create].
//
// The decision is pure, in package place, and made for all VMs of a job on the node at
// once. Leases are in package lease: one file per VF, on disk before the VF is touched.
// A record contains the VF's original state, so that it can be restored after a crash.
// The packages sriov and software set a VF and hand it to a VM. Pools of several
// processes may share one node.
//
// The pool computes free bandwidth from the records, never from the hardware: there, a
// minimum that a crash has left behind would count for ever.
package vfpool

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/concurrently"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vfpool/device"
	"github.com/slurm-v/slurm-v/vfpool/lease"
	"github.com/slurm-v/slurm-v/vfpool/software"
	"github.com/slurm-v/slurm-v/vfpool/sriov"
)

// A backend manages the VFs of one kind.
type backend interface {
	// PFs returns the PFs that the node has.
	PFs() ([]device.PF, error)
	// State returns the present state of the VF, to be restored later.
	State(ctx context.Context, vf device.VF) (device.State, error)
	// Apply sets the VF through its PF and checks the result.
	Apply(ctx context.Context, vf device.VF, want device.Settings) error
	// Attach prepares the VF so that a QEMU of owner can open it.
	Attach(ctx context.Context, vf device.VF, owner owner.IDs) error
	// Restore undoes Apply and Attach, however far they got.
	Restore(ctx context.Context, vf device.VF, original device.State) error
	// Remains returns the settings of a VF as a job may have left it, zero for any other.
	Remains(ctx context.Context, vf device.VF) (device.Settings, error)
	// Reset restores a VF whose original state is lost. It refuses one that a program has open.
	Reset(ctx context.Context, vf device.VF) error
}

// A Pool is the VFs of one node.
type Pool struct {
	cfg      config.VF
	backends map[device.Kind]backend
	cards    *sriov.Cards
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
		backends: map[device.Kind]backend{device.SRIOV: cards, device.Software: software.Open(cfg.VF, cfg.Fabric.HasPool(config.TagVLAN))},
		cards:    cards,
		leases:   leases,
		step:     func(lease.Lease) {},
	}, nil
}

// A Demand is what a job wants of this node: the VFs of all of its VMs.
type Demand struct {
	Job      journal.ID
	Owner    owner.IDs // the account that QEMU runs as
	VLAN     uint16    // the job's tag on Ethernet; 0 without a VLAN
	PKey     uint16    // the job's partition on InfiniBand, as its full members write it; 0 without
	Requests []VFRequest
}

// A Grant is a VF that a VM gets.
type Grant struct {
	Request  VFRequest
	VF       device.VF
	Settings device.Settings

	Slingshot string // PCI address of the PF, if it is a Slingshot card's; else ""

	Note string // in soft mode, the settings that the driver cannot make and that were omitted
}

// Acquire leases, sets and attaches the VFs of a job: all of them or none. The grants are
// in the order of the requests. If the error is [ErrNoFit], the job may fit on another
// node. If Acquire fails, call Release.
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

// lease decides, under the pool's lock, which VFs the job gets, and records it. It reads
// the hardware before it takes the lock: that is slow, and leases do not change the
// result.
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

// holding returns the leases that hold. It ends those from before the last boot: the
// power-off has ended their jobs and reset their VFs.
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

// record returns the lease of a VF. Its rates are those asked for, which the pool counts
// even if the driver cannot set them.
func record(d Demand, g Grant) lease.Lease {
	want := g.Settings
	want.MinRate, want.MaxRate = g.Request.VF.MinMbps, g.Request.VF.MaxMbps
	return lease.Lease{VF: g.VF, Job: d.Job, VM: g.Request.VM, Index: g.Request.Index, Want: want}
}

// pfs returns the PFs of all kinds that the site allows.
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

// prepare makes a leased VF ready for QEMU. The VF's original state is on disk before the
// VF is changed.
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

// guard keeps other jobs from what the VFs of a software PF share: attaching the first VF
// makes it and restoring the last removes it. The VFs of a card share nothing like that.
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

// Release restores and gives back the job's VFs, whatever state they are in. It may be
// called at any time and any number of times. A VF that cannot be restored stays leased
// to the job, with the reason in [Pool.List] and in the error.
func (p *Pool) Release(ctx context.Context, job journal.ID) error {
	records, err := p.leases.Read()
	if err != nil {
		return err
	}
	records = slices.DeleteFunc(records, func(r lease.Lease) bool { return r.Job != job })
	return errors.Join(concurrently.Each(records, len(records), func(r lease.Lease) error { return p.giveBack(ctx, r) })...)
}

// Left says, as an error, which VFs are leased to the job, to any of its runs; nil for none.
func (p *Pool) Left(job uint32) error {
	records, err := p.leases.Read()
	for _, r := range records {
		if r.Job.Job == job && !r.OldBoot {
			return fmt.Errorf("VF %d of %s is leased to job %s", r.VF.Index, r.VF.PF, r.Job)
		}
	}
	return err
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

// restore undoes prepare. After a reboot, or before step Saved, there is nothing to undo.
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

// ReleaseOrphans gives back the VFs of jobs that live reports as ended, and returns those
// jobs. It calls live after reading the records; otherwise a job that is just starting
// could count as ended.
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
