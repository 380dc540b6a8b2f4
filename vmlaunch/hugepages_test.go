package vmlaunch

import (
	"context"
	"errors"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/filetest"
	"github.com/slurm-v/slurm-v/internal/hugepages"
	"github.com/slurm-v/slurm-v/ivshmem"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// pagesOfAJob is how many pages of 2M the two VMs of aJob need.
const pagesOfAJob = 512

// nodeWithPages is the sysfs of a node with so many free pages of 2M.
func nodeWithPages(t *testing.T, pages int) (sysfs string) {
	t.Helper()
	sysfs = t.TempDir()
	setPages(t, sysfs, pages)
	return sysfs
}

func setPages(t *testing.T, sysfs string, pages int) {
	t.Helper()
	filetest.Write(t, filepath.Join(sysfs, "kernel/mm/hugepages/hugepages-2048kB/free_hugepages"), strconv.Itoa(pages))
}

// claim claims huge pages for a job.
func claim(ctx context.Context, v *VMs, sysfs string, want config.HugePages) (plan.Plan, error) {
	v.store.sysfs = sysfs
	p := v.Plan
	p.PageSizes, p.Job.Spec.HugePages = []uint{2048}, want
	return v.store.claimPages(ctx, v.journal, p)
}

// soon is a context that ends before a promise has waited for other jobs.
func soon(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	t.Cleanup(cancel)
	return ctx
}

func TestTwoJobsAreNotPromisedTheSamePages(t *testing.T) {
	tests := map[string]struct{ free, fit int }{
		"pages for both":     {2 * pagesOfAJob, 8},
		"pages for one":      {2*pagesOfAJob - 1, 4},
		"too few for either": {pagesOfAJob - 1, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := 0
			for range 4 { // a race shows sometimes
				cfg, sysfs := stateIn(t.TempDir()), nodeWithPages(t, tt.free)
				jobs := []*VMs{aJob(t, cfg, 42, jobspec.IVShmem{}), aJob(t, cfg, 43, jobspec.IVShmem{})}
				errs := make([]error, len(jobs))
				var both sync.WaitGroup
				for i, v := range jobs {
					both.Go(func() { _, errs[i] = claim(t.Context(), v, sysfs, config.HugePages2M) })
				}
				both.Wait()
				for _, err := range errs {
					if err == nil {
						got++
					} else if !errors.Is(err, hugepages.ErrShort) {
						t.Fatal(err)
					}
				}
			}
			if got != tt.fit {
				t.Errorf("%d jobs of 8 got pages, want %d", got, tt.fit)
			}
		})
	}
}

func TestARefusalHasTheNumbers(t *testing.T) {
	cfg, sysfs := stateIn(t.TempDir()), nodeWithPages(t, pagesOfAJob+100)
	if _, err := claim(t.Context(), aJob(t, cfg, 42, jobspec.IVShmem{}), sysfs, config.HugePages2M); err != nil {
		t.Fatal(err)
	}
	const want = "--vm-hugepages=2M: the VMs on node n2 need 512 pages of 2M, 612 are free, 512 of them promised to other jobs; wait for other jobs, ask for less memory, or use --vm-hugepages=no"
	if _, err := claim(t.Context(), aJob(t, cfg, 43, jobspec.IVShmem{}), sysfs, config.HugePages2M); err == nil || err.Error() != want {
		t.Errorf("error = %v, want %s", err, want)
	}
}

// A job that does not ask for huge pages runs without them.
func TestVMsWithoutHugePagesIfThereAreTooFew(t *testing.T) {
	cfg, sysfs := stateIn(t.TempDir()), nodeWithPages(t, pagesOfAJob)
	with, err := claim(t.Context(), aJob(t, cfg, 42, jobspec.IVShmem{}), sysfs, "")
	if err != nil || with.PageKiB != 2048 || with.Ordinary != nil || with.Cold == "" {
		t.Errorf("pages of %d KiB, reason %v, cold %q, error %v", with.PageKiB, with.Ordinary, with.Cold, err)
	}
	without, err := claim(t.Context(), aJob(t, cfg, 43, jobspec.IVShmem{}), sysfs, "")
	if err != nil || without.PageKiB != 0 || without.Cold != "" || !errors.Is(without.Ordinary, hugepages.ErrShort) {
		t.Errorf("pages of %d KiB, reason %v, cold %q, error %v", without.PageKiB, without.Ordinary, without.Cold, err)
	}
}

// A promise counts from the job's claim until QEMU has the pages, or until reclaim.
func TestWhatCountsAsPromised(t *testing.T) {
	intend := func(v *VMs) error { return v.journal.Intend(recordDomain, v.Plan.VMs[0].UUID, nil) }
	done := func(v *VMs) error { return v.journal.Done(recordDomain, v.Plan.VMs[0].UUID) }
	tests := map[string]struct {
		then         func(v *VMs) error
		open, taking uint64
	}{
		"claimed":        {func(*VMs) error { return nil }, 512, 0},
		"QEMU starts":    {intend, 256, 256},
		"QEMU has them":  {func(v *VMs) error { return errors.Join(intend(v), done(v)) }, 256, 0},
		"QEMU has ended": {func(v *VMs) error { return errors.Join(intend(v), done(v), domainEnded(v.journal, v.Plan.VMs[0].UUID)) }, 256, 0},
		"the agent died": {func(v *VMs) error { return v.journal.Close() }, 512, 0},
		"reclaimed":      {func(v *VMs) error { return v.store.reclaim(context.Background(), v.journal) }, 0, 0},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			cfg := stateIn(t.TempDir())
			cfg.Paths.Run = filepath.Join(t.TempDir(), "%n")
			v := aJob(t, cfg, 42, jobspec.IVShmem{})
			if _, err := claim(t.Context(), v, nodeWithPages(t, pagesOfAJob), config.HugePages2M); err != nil {
				t.Fatal(err)
			}
			if err := tt.then(v); err != nil {
				t.Fatal(err)
			}
			states, err := journalsOfThisBoot(v.store.state)
			open, taking := promised(states)
			if got, is := sum(open), sum(taking); err != nil || got != tt.open || is != tt.taking {
				t.Errorf("%d pages are open and %d being taken, error %v; want %d and %d", got, is, err, tt.open, tt.taking)
			}
		})
	}
}

func sum(needs []hugepages.Need) (pages uint64) {
	for _, n := range needs {
		pages += n.Pages
	}
	return pages
}

// While QEMU takes its pages, they are missing among the free ones and still promised. A
// job that comes then waits, and is not refused what is there.
func TestAPromiseWaitsForQEMUs(t *testing.T) {
	cfg, sysfs := stateIn(t.TempDir()), nodeWithPages(t, 2*pagesOfAJob)
	first, second := aJob(t, cfg, 42, jobspec.IVShmem{}), aJob(t, cfg, 43, jobspec.IVShmem{})
	if _, err := claim(t.Context(), first, sysfs, config.HugePages2M); err != nil {
		t.Fatal(err)
	}
	for _, vm := range first.Plan.VMs {
		if err := first.journal.Intend(recordDomain, vm.UUID, nil); err != nil {
			t.Fatal(err)
		}
	}
	setPages(t, sysfs, pagesOfAJob)
	if _, err := claim(soon(t), second, sysfs, config.HugePages2M); !errors.Is(err, hugepages.ErrShort) {
		t.Fatalf("error = %v while QEMU starts", err)
	}
	go func() {
		for _, vm := range first.Plan.VMs {
			_ = first.journal.Done(recordDomain, vm.UUID)
		}
	}()
	if _, err := claim(t.Context(), second, sysfs, config.HugePages2M); err != nil {
		t.Error(err)
	}
}

// Shared memory of huge pages takes none that VMs are promised, and VMs none of its.
func TestRegionsAndVMsShareThePages(t *testing.T) {
	cfg, sysfs := stateIn(t.TempDir()), nodeWithPages(t, pagesOfAJob+1)
	v := aJob(t, cfg, 42, jobspec.IVShmem{})
	if _, err := claim(t.Context(), v, sysfs, config.HugePages2M); err != nil {
		t.Fatal(err)
	}
	region := ivshmem.Region{Name: "r", Size: 3 << 20, Page: 2 << 20}
	lease := func() error {
		return v.store.promise(soon(t), regionPages(region), func() error { return v.journal.Intend(recordRegion, region.Name, region) })
	}
	if err := lease(); err == nil || !strings.Contains(err.Error(), "need 2 pages of 2M, 513 are free, 512 of them promised") {
		t.Errorf("error = %v", err)
	}
	setPages(t, sysfs, pagesOfAJob+2)
	if err := lease(); err != nil {
		t.Error(err)
	}
	if _, err := claim(soon(t), aJob(t, cfg, 43, jobspec.IVShmem{}), sysfs, config.HugePages2M); err == nil || !strings.Contains(err.Error(), "514 of them promised") {
		t.Errorf("error = %v", err)
	}
}

// Memory does not survive a reboot, and promises of it do not either.
func TestPromisesOfAnEarlierBoot(t *testing.T) {
	cfg := stateIn(t.TempDir())
	v := aJob(t, cfg, 42, jobspec.IVShmem{})
	if _, err := claim(t.Context(), v, nodeWithPages(t, pagesOfAJob), config.HugePages2M); err != nil {
		t.Fatal(err)
	}
	for boot, want := range map[string]int{v.journal.Header().BootID: 1, "another": 0} {
		state, err := journal.Read(v.store.state, v.Plan.Job.ID)
		state.Header.BootID = boot
		if got := ofBoot([]journal.State{state}, v.journal.Header().BootID); err != nil || len(got) != want {
			t.Errorf("%d journals of boot %s count, want %d; error %v", len(got), boot, want, err)
		}
	}
}
