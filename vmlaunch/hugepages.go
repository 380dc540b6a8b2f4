package vmlaunch

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/durable"
	"github.com/slurm-v/slurm-v/internal/hugepages"
	"github.com/slurm-v/slurm-v/ivshmem"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// claimPages decides what pages the VMs' memory has, and promises the VMs their huge pages:
// it writes them into the journal. If the job asks for huge pages and the node has too few,
// that is an error; if it does not ask, the VMs have ordinary ones.
func (s store) claimPages(ctx context.Context, j *journal.Journal, p plan.Plan) (plan.Plan, error) {
	var short error
	for _, kib := range p.PageSizes {
		on := p.OnPages(kib)
		if short = s.promise(ctx, pagesOf(on), func() error { return notePages(j, on) }); short == nil {
			return on, nil
		}
		if !errors.Is(short, hugepages.ErrShort) {
			return p, short
		}
	}
	if short != nil && p.Job.Spec.HugePages != "" {
		return p, fmt.Errorf("--vm-hugepages=%s: the VMs on node %s %w; wait for other jobs, ask for less memory, or use --vm-hugepages=no", p.Job.Spec.HugePages, p.Job.Node, short)
	}
	p.Ordinary = short
	return p, nil
}

func pagesOf(p plan.Plan) (needs []hugepages.Need) {
	for _, vm := range p.VMs {
		needs = append(needs, p.Pages(vm)...)
	}
	return needs
}

func notePages(j *journal.Journal, p plan.Plan) (err error) {
	for _, vm := range p.VMs {
		err = errors.Join(err, j.Intend(recordPages, vm.UUID, p.Pages(vm)))
	}
	return err
}

// settlePatience is how long a promise waits for VMs of other jobs that are just taking
// their pages: meanwhile nobody can tell how many of the free pages are still to be theirs.
const settlePatience = 30 * time.Second

// promise calls note, which writes needs into a journal, if the node has so many huge pages
// that are free and not promised. No other job is promised pages meanwhile.
func (s store) promise(ctx context.Context, needs []hugepages.Need, note func() error) error {
	ctx, cancel := context.WithTimeout(ctx, settlePatience)
	defer cancel()
	for {
		settled, err := s.promiseNow(ctx, needs, note)
		if settled || !errors.Is(err, hugepages.ErrShort) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// promiseNow is promise without waiting. settled reports that waiting changes nothing.
func (s store) promiseNow(ctx context.Context, needs []hugepages.Need, note func() error) (settled bool, err error) {
	lock, err := durable.Lock(ctx, filepath.Join(s.state, "hugepages.lock"), os.O_CREATE)
	if err != nil {
		return false, fmt.Errorf("count huge pages: %w", err)
	}
	defer lock.Close()
	states, err := journalsOfThisBoot(s.state)
	if err != nil {
		return false, fmt.Errorf("count huge pages: %w", err)
	}
	free := hugepages.Read(s.sysfs)
	open, taking := promised(states)
	if err := hugepages.Fit(free, slices.Concat(open, taking), needs); err != nil {
		return hugepages.Fit(free, open, needs) != nil, err
	}
	return true, note()
}

// promised returns the huge pages that are promised and not taken: those that are certainly
// still free, and those of which some may be taken already, because QEMU is starting. QEMU
// takes all pages of a VM before it starts the VM. After that, the kernel counts them.
func promised(states []journal.State) (open, taking []hugepages.Need) {
	for _, s := range states {
		for _, r := range s.Held {
			needs, begun := promiseOf(r, s.Held)
			if begun {
				taking = append(taking, needs...)
			} else {
				open = append(open, needs...)
			}
		}
	}
	return open, taking
}

// promiseOf returns the huge pages that a record promises, and whether they are being
// taken. held are all records of its job.
func promiseOf(r journal.Record, held []journal.Record) (needs []hugepages.Need, begun bool) {
	switch r.Kind {
	case recordPages:
		domain := slices.IndexFunc(held, func(d journal.Record) bool { return d.Kind == recordDomain && d.Name == r.Name })
		if domain < 0 || !held[domain].Done {
			_ = r.Decode(&needs) // a record that cannot be read promises nothing
		}
		return needs, domain >= 0
	case recordRegion:
		var region ivshmem.Region
		if !r.Done && r.Decode(&region) == nil && region.Page != 0 {
			return regionPages(region), true
		}
	}
	return nil, false
}

// regionPages returns the huge pages that a region of shared memory needs.
func regionPages(r ivshmem.Region) []hugepages.Need {
	return []hugepages.Need{{KiB: uint(r.Page >> 10), NUMA: hugepages.Any, Pages: uint64((r.FileSize() + r.Page - 1) / r.Page)}}
}

// journalsOfThisBoot returns what the journals of the node contain, without those from
// before the last boot: memory does not survive a reboot.
func journalsOfThisBoot(state string) (states []journal.State, err error) {
	ids, err := journal.List(state)
	boot, bootErr := journal.BootID()
	if err := errors.Join(err, bootErr); err != nil {
		return nil, err
	}
	for _, id := range ids {
		s, err := journal.Read(state, id)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			slog.Warn("what memory a job holds is not known", "job", id, "error", err)
		}
		states = append(states, s)
	}
	return ofBoot(states, boot), nil
}

func ofBoot(states []journal.State, boot string) []journal.State {
	return slices.DeleteFunc(states, func(s journal.State) bool { return s.Header.BootID != boot })
}

// domainEnded takes a VM whose QEMU has ended off the journal. It begins with the VM's huge
// pages: they are free now, and would count as promised without their domain.
func domainEnded(j *journal.Journal, uuid string) error {
	pages := func(r journal.Record) bool { return r.Kind == recordPages && r.Name == uuid }
	if slices.ContainsFunc(j.Held(), pages) {
		if err := j.Undone(recordPages, uuid); err != nil {
			return err
		}
	}
	return j.Undone(recordDomain, uuid)
}

// logPages logs what pages the VMs' memory has, if that is worth a line.
func logPages(p plan.Plan, log *slog.Logger) {
	if p.PageKiB != 0 {
		log.Info("the VMs' memory has huge pages", "size", config.Size(p.PageKiB>>10))
	}
	if p.Ordinary != nil {
		log.Info("the VMs' memory has ordinary pages", "reason", p.Ordinary)
	}
}
