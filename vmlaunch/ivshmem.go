package vmlaunch

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/hugepages"
	"github.com/slurm-v/slurm-v/ivshmem"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// sharedMemory is the regions of shared memory that all the job's VMs on the node have, one
// for each device.
type sharedMemory struct {
	plan    plan.Plan
	here    ivshmem.Regions
	state   string // directory of the node's journals
	promise func(ctx context.Context, pages []hugepages.Need, note func() error) error
	journal *journal.Journal
	trace   *machine.Trace

	regions []ivshmem.Region
	memory  []*ivshmem.RegionFile // of the same, once made is closed
	made    chan struct{}
}

func newSharedMemory(v *VMs) *sharedMemory {
	return &sharedMemory{
		plan: v.Plan, here: v.store.regions, state: v.store.state, promise: v.store.promise, journal: v.journal, trace: v.Trace,
		made: make(chan struct{}),
	}
}

// lease writes the job's regions into the journal, and refuses them if the site does not
// allow that much.
func (s *sharedMemory) lease(ctx context.Context) error {
	for k := range s.plan.Job.Spec.IVShmem.Devices {
		r, err := s.leaseRegion(ctx, s.newRegion(k))
		if err != nil {
			return err
		}
		s.regions = append(s.regions, r)
	}
	if len(s.regions) == 0 {
		return nil
	}
	return s.admit()
}

func (s *sharedMemory) newRegion(k int) ivshmem.Region {
	r := s.here.New(s.plan.Job.ID, k, s.plan.RegionSize())
	if s.plan.NVDIMM {
		return r.OnNVDIMM()
	}
	return r
}

// leaseRegion writes a region into the journal: with huge pages, if the site wants them and
// the node has enough.
func (s *sharedMemory) leaseRegion(ctx context.Context, r ivshmem.Region) (ivshmem.Region, error) {
	note := func(r ivshmem.Region) error { return s.journal.Intend(recordRegion, r.Name, r) }
	if s.plan.RegionPage == 0 {
		return r, note(r)
	}
	huge, err := r.OnHugePages(s.plan.RegionPage.MiB() << 20)
	if err == nil {
		err = s.promise(ctx, regionPages(huge), func() error { return note(huge) })
		if !errors.Is(err, hugepages.ErrShort) {
			return huge, err
		}
	}
	s.logOrdinary(r, err)
	return r, note(r)
}

// logOrdinary logs why a region has no huge pages, if there is a reason.
func (s *sharedMemory) logOrdinary(r ivshmem.Region, why error) {
	if why != nil {
		s.trace.Log.Warn("shared memory has no huge pages", "device", r.Index, "reason", why)
	}
}

// admit compares the regions of all jobs of the node with the site's limit. A job's own
// regions are in its journal already. So if two jobs come at once, both may be refused, but
// the node never gives more than the limit.
func (s *sharedMemory) admit() error {
	held, err := regionsHeld(s.state)
	if err != nil {
		return err
	}
	if all, limit := config.Size((held+1<<20-1)>>20), s.plan.RegionLimit; all > limit {
		return fmt.Errorf("the jobs on node %s would have %s of shared memory (--ivshmem), and this site allows %s (limits.ivshmem_per_node); wait for other jobs, or ask for less", s.plan.Job.Node, all, limit)
	}
	return nil
}

// regionsHeld adds up the regions of all jobs, in bytes.
func regionsHeld(state string) (sum int64, err error) {
	states, err := journalsOfThisBoot(state)
	for _, s := range states {
		for _, r := range s.Held {
			var region ivshmem.Region
			if r.Kind == recordRegion && r.Decode(&region) == nil {
				sum += region.Size
			}
		}
	}
	return sum, err
}

// make allocates the memory. This may take seconds; the VMs boot meanwhile.
func (s *sharedMemory) make(ctx context.Context) error {
	for _, r := range s.regions {
		m, err := s.here.Create(ctx, r, s.plan.Owner.IDs(), s.plan.Hardware.NUMA)
		if err != nil {
			return err
		}
		s.logOrdinary(r, m.Ordinary)
		s.memory = append(s.memory, m)
		if err := s.journal.Done(recordRegion, r.Name); err != nil {
			return err
		}
	}
	close(s.made)
	return nil
}

// plug gives a running VM its devices, once the memory is allocated.
func (s *sharedMemory) plug(ctx context.Context, plug func(ivshmem.Region) error) error {
	select {
	case <-s.made:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for _, r := range s.regions {
		if err := plug(r); err != nil {
			return err
		}
	}
	return nil
}

// wipe clears region k. No program may use the region meanwhile.
func (s *sharedMemory) wipe(k int) error {
	if k < 0 || k >= len(s.memory) {
		return fmt.Errorf("shared-memory device %d does not exist: the job has %d", k, len(s.memory))
	}
	if err := s.memory[k].Wipe(context.Background()); err != nil {
		return fmt.Errorf("wipe shared-memory device %d: %w", k, err)
	}
	return nil
}

func (s *sharedMemory) close() {
	for _, m := range s.memory {
		_ = m.Close()
	}
}

// removeRegion gives a region back once no VM has it mapped. The job's owner can replace
// the region's file. removeRegion leaves such a file alone, as any other file of the
// owner's; the kernel frees the region's memory when the last process that maps it has
// ended.
func (s store) removeRegion(ctx context.Context, j *journal.Journal, name string) error {
	if slices.ContainsFunc(j.Held(), func(r journal.Record) bool { return slices.Contains(vmRecords, r.Kind) }) {
		return errors.New("a VM that has it mapped has not ended")
	}
	err := s.regions.Remove(ctx, heldRegion(j, name), j.Header().UID)
	if errors.Is(err, ivshmem.ErrForeign) {
		slog.Warn("another file has a region's name and is left alone", "job", j.ID(), "error", err)
		return nil
	}
	return err
}

// heldRegion returns a region from its journal record. The record says whether the region's
// file is on huge pages.
func heldRegion(j *journal.Journal, name string) ivshmem.Region {
	region := ivshmem.Region{Name: name}
	for _, r := range j.Held() {
		if r.Kind == recordRegion && r.Name == name {
			_ = r.Decode(&region) // a record with a name alone means ordinary pages
		}
	}
	return region
}

// orphansPatience bounds how long regions without a journal are removed. It is bounded
// because any user can make files with a region's name.
const orphansPatience = 30 * time.Second

// releaseOrphanRegions removes the regions of jobs that have no journal, because somebody
// removed it by hand. It lists the regions before it looks for journals: a launch begins
// its journal before it makes regions, so the regions of a starting job are never taken for
// orphans. Regions for which the time runs out stay until the next call.
func (s store) releaseOrphanRegions(ctx context.Context) error {
	found, failed := s.regions.List()
	within, cancel := context.WithTimeout(ctx, orphansPatience)
	defer cancel()
	for _, f := range found {
		if s.hasJournal(f.Job) {
			continue
		}
		err := s.regions.Remove(within, f.Region, f.UID)
		switch {
		case err == nil:
		case errors.Is(err, ivshmem.ErrForeign):
			slog.Debug("no region, though it has the name of one", "error", err)
		case within.Err() != nil && ctx.Err() == nil:
			slog.Warn("regions without a journal are left to the next time", "error", err)
			return failed
		default:
			failed = errors.Join(failed, err)
		}
	}
	return failed
}
