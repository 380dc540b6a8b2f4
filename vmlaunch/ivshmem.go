package vmlaunch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/ivshmem"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vmlaunch/hypervisor"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// sharedMemory is the regions that all VMs of the node have, device by device.
type sharedMemory struct {
	plan    plan.Plan
	here    ivshmem.Regions
	state   string // directory of the node's journals
	journal *journal.Journal
	trace   *machine.Trace

	regions []ivshmem.Region
	memory  []*ivshmem.RegionFile // of the same, once made is closed
	made    chan struct{}
}

func newSharedMemory(v *VMs) *sharedMemory {
	return &sharedMemory{
		plan: v.Plan, here: v.store.regions, state: v.store.state, journal: v.journal, trace: v.Trace,
		made: make(chan struct{}),
	}
}

// lease writes down which regions the job is to have, if the site allows that much.
func (s *sharedMemory) lease() error {
	for k := range s.plan.Job.Spec.IVShmem.Devices {
		r := s.withHugePages(s.here.New(s.plan.Job.ID, k, s.plan.RegionSize()))
		if err := s.journal.Intend(recordRegion, r.Name, r); err != nil {
			return err
		}
		s.regions = append(s.regions, r)
	}
	if len(s.regions) == 0 {
		return nil
	}
	return s.admit()
}

// withHugePages makes the region one of huge pages, if the site wants that and the node
// can.
func (s *sharedMemory) withHugePages(r ivshmem.Region) ivshmem.Region {
	if s.plan.RegionPage == 0 {
		return r
	}
	r, err := r.OnHugePages(s.plan.RegionPage.MiB() << 20)
	s.logOrdinary(r, err)
	return r
}

// logOrdinary writes down why a region is of ordinary pages, if there is a reason.
func (s *sharedMemory) logOrdinary(r ivshmem.Region, why error) {
	if why != nil {
		s.trace.Log.Warn("shared memory has no huge pages", "device", r.Index, "reason", why)
	}
}

// admit holds what all jobs of the node have against the site's limit. A
// job's own regions are in its journal already: of two jobs that come at once,
// both may then be refused, but never too much is given.
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

// regionsHeld adds up the regions of all jobs, in bytes. A reboot has taken those
// of before with it.
func regionsHeld(state string) (sum int64, err error) {
	ids, err := journal.List(state)
	boot, bootErr := journal.BootID()
	if err := errors.Join(err, bootErr); err != nil {
		return 0, err
	}
	for _, id := range ids {
		s, err := journal.Read(state, id)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			slog.Warn("the shared memory of a job is not known", "job", id, "error", err)
		}
		if s.Header.BootID != boot {
			continue
		}
		for _, r := range s.Held {
			var region ivshmem.Region
			if r.Kind == recordRegion && r.Decode(&region) == nil {
				sum += region.Size
			}
		}
	}
	return sum, nil
}

// make takes the memory. It may take seconds, in which the VMs boot.
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

// plug gives a running VM its devices, when the memory is there.
func (s *sharedMemory) plug(ctx context.Context, vm *hypervisor.Domain) error {
	select {
	case <-s.made:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	for _, r := range s.regions {
		if err := vm.PlugRegion(r); err != nil {
			return err
		}
	}
	return nil
}

// wipe clears what is in region k. Nobody may use it at that time.
func (s *sharedMemory) wipe(k int) error {
	if k < 0 || k >= len(s.memory) {
		return fmt.Errorf("shared-memory device %d is none of the job's %d", k, len(s.memory))
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

// removeRegion gives a region back once no VM has it mapped. Its owner can have
// put something else in its place; that is his as any file of his there, and the
// memory is free when the last who had it mapped has ended.
func (s store) removeRegion(ctx context.Context, j *journal.Journal, name string) error {
	if slices.ContainsFunc(j.Held(), func(r journal.Record) bool { return r.Kind == recordDomain }) {
		return errors.New("a VM that has it mapped has not ended")
	}
	err := s.regions.Remove(ctx, heldRegion(j, name), j.Header().UID)
	if errors.Is(err, ivshmem.ErrForeign) {
		slog.Warn("left alone what stands in the place of a region", "job", j.ID(), "error", err)
		return nil
	}
	return err
}

// heldRegion is what the journal says of a region: its file may be among the huge pages.
func heldRegion(j *journal.Journal, name string) ivshmem.Region {
	region := ivshmem.Region{Name: name}
	for _, r := range j.Held() {
		if r.Kind == recordRegion && r.Name == name {
			_ = r.Decode(&region) // a record without it is of ordinary pages
		}
	}
	return region
}

// orphansPatience bounds how long regions without a journal are removed. Anybody can
// make files that look like one.
const orphansPatience = 30 * time.Second

// releaseOrphanRegions removes the regions of jobs without a journal, which somebody
// has removed by hand: a launch begins the journal before it makes regions. They
// are listed first, so that none of a job that is just starting is taken for one.
// Those for which the time is too short are left to the next call.
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
