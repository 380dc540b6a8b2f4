package vfpool

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vfpool/device"
	"github.com/slurm-v/slurm-v/vfpool/lease"
	"github.com/slurm-v/slurm-v/vfpool/sriov/sriovtest"
)

// A lab is a made-up node and the directory of its records.
type lab struct {
	node  *sriovtest.Node
	state string
}

func newLab(t *testing.T, cards ...sriovtest.Card) lab {
	t.Helper()
	return lab{sriovtest.New(t, cards...), t.TempDir()}
}

// pool opens the node's pool, as any process on the node would. It calls before ahead of
// every step at which a crash can happen.
func (l lab) pool(before func(step string)) (*Pool, error) {
	cfg := config.Default()
	cfg.Paths.State = l.state
	cards := l.node.Open()
	if before != nil {
		cards.Before = before
	}
	p, err := open(cfg, "n1", cards)
	if err == nil && before != nil {
		p.step = func(r lease.Lease) { before("record " + string(r.Phase)) }
	}
	return p, err
}

func (l lab) mustPool(t *testing.T) *Pool {
	t.Helper()
	p, err := l.pool(nil)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

var twoCards = []sriovtest.Card{
	{Name: "eth0", Driver: "mlx5_core", Speed: 100000, VFs: 4, HostDriver: "mlx5_core", NUMA: 0},
	{Name: "eth1", Driver: "igb", Speed: 1000, VFs: 7, HostDriver: "igbvf", NUMA: 1},
}

func demand(job uint32, vfs ...jobspec.VF) Demand {
	d := Demand{Job: journal.ID{Job: job}, VLAN: 100, Owner: owner.IDs{UID: 6001, GID: 6001}}
	for i, vf := range vfs {
		d.Requests = append(d.Requests, VFRequest{VM: i, NUMA: -1, MAC: fmt.Sprintf("06:00:00:00:%02x:%02x", job, i), VF: vf})
	}
	return d
}

func TestAJobGetsItsVFsAndGivesThemBack(t *testing.T) {
	l := newLab(t, twoCards...)
	p := l.mustPool(t)
	before := l.node.Snapshot(t)
	grants, err := p.Acquire(t.Context(), demand(7, jobspec.VF{MinMbps: 40000, MaxMbps: 50000}, jobspec.VF{PF: "eth1"}))
	if err != nil {
		t.Fatal(err)
	}
	if grants[0].VF.PF != "eth0" || grants[1].VF.PF != "eth1" {
		t.Errorf("VFs of %s and %s", grants[0].VF.PF, grants[1].VF.PF)
	}
	pfs, err := p.List()
	if err != nil {
		t.Fatal(err)
	}
	if pf := pfs[0]; pf.Used != 40000 || pf.Capacity != 95000 || pf.UsedVFs != 1 || pf.CapVFs != 4 {
		t.Errorf("eth0 is %+v", pf)
	}
	if vf := pfs[1].VFs[grants[1].VF.Index]; vf.Job != "7.0" || vf.State != lease.Attached || vf.VLAN != 100 || !vf.SpoofCheck || vf.VM != 1 {
		t.Errorf("the VF of eth1 is %+v", vf)
	}
	if l.node.Snapshot(t) == before {
		t.Error("nothing was set")
	}
	for range 2 { // any number of calls is allowed
		if err := p.Release(t.Context(), journal.ID{Job: 7}); err != nil {
			t.Fatal(err)
		}
	}
	l.checkClean(t, before)
}

// A VM of the site's own, of libvirt's account, has the VF by vfio-pci. What releases a job kills the
// programs of whoever had the VF before, so the VF must not become a job's.
func TestAVFThatTheSiteUsesIsLeftAlone(t *testing.T) {
	l := newLab(t, sriovtest.Card{Name: "eth0", Driver: "mlx5_core", Speed: 100000, VFs: 1, HostDriver: "mlx5_core"})
	cards := l.node.Open()
	pfs, err := cards.PFs()
	if err != nil {
		t.Fatal(err)
	}
	vf, libvirt := pfs[0].VFs[0], owner.IDs{UID: 64055, GID: 109}
	if err := errors.Join(cards.Apply(t.Context(), vf, device.Settings{VLAN: 7}), cards.Attach(t.Context(), vf, libvirt)); err != nil {
		t.Fatal(err)
	}
	end, err := l.node.Hold(vf.PCI)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	l.node.OnEnd = func(uid uint32) { t.Errorf("programs of user %d are killed", uid) }
	before, p := l.node.Snapshot(t), l.mustPool(t)
	if _, err := p.Acquire(t.Context(), demand(7, jobspec.VF{})); !errors.Is(err, unix.EBUSY) {
		t.Errorf("error = %v", err)
	}
	if err := p.Release(t.Context(), journal.ID{Job: 7}); err != nil {
		t.Error(err)
	}
	l.checkClean(t, before)
}

// checkClean looks for anything that a job could have left.
func (l lab) checkClean(t *testing.T, before string) {
	t.Helper()
	if after := l.node.Snapshot(t); after != before {
		t.Errorf("the VFs are not what they were:\n%s\nwas\n%s", after, before)
	}
	records, err := l.mustPool(t).leases.Read()
	if err != nil || len(records) != 0 {
		t.Errorf("%d records are left, %v: %+v", len(records), err, records)
	}
}

func TestAClaimThatDoesNotFitTakesNothing(t *testing.T) {
	tests := map[string]struct {
		demand Demand
		want   string
	}{
		"more than the line has left": {demand(7, jobspec.VF{MinMbps: 96000}), "eth0"},
		"more VFs than there are":     {demand(7, make([]jobspec.VF, 12)...), ""},
		"a minimum on igb":            {demand(7, jobspec.VF{MinMbps: 10, PF: "eth1"}), "eth1"},
		"a PF that is not there":      {demand(7, jobspec.VF{PF: "eth9"}), "eth9"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, twoCards...)
			before := l.node.Snapshot(t)
			_, err := l.mustPool(t).Acquire(t.Context(), tt.demand)
			if !errors.Is(err, ErrNoFit) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error = %v", err)
			}
			l.checkClean(t, before)
		})
	}
}

func TestSoftModeCountsWhatItCannotSet(t *testing.T) {
	l := newLab(t, twoCards[1])
	p := l.mustPool(t)
	p.cfg.Mode = config.VFSoft
	grants, err := p.Acquire(t.Context(), demand(7, jobspec.VF{MinMbps: 600}))
	if err != nil || grants[0].Settings.MinRate != 0 || !strings.Contains(grants[0].Note, "accounted only") {
		t.Fatalf("%v, %+v", err, grants)
	}
	if _, err := p.Acquire(t.Context(), demand(8, jobspec.VF{MinMbps: 600})); !errors.Is(err, ErrNoFit) {
		t.Errorf("a second minimum of 600 Mb/s on a line of 1000: %v", err)
	}
}

func TestAVLANNeedsADriverThatSetsIt(t *testing.T) {
	l := newLab(t, sriovtest.Card{Name: "eth0", Driver: "acme", VFs: 2})
	_, err := l.mustPool(t).Acquire(t.Context(), demand(7, jobspec.VF{}))
	if !errors.Is(err, ErrNoFit) || !strings.Contains(err.Error(), "eth0") {
		t.Errorf("error = %v", err)
	}
}

// CXI services keep VFs of Slingshot cards apart, so these have no VLAN. A minimum cannot be
// guaranteed there.
func TestSlingshotVFsHaveNoVLANAndNoRate(t *testing.T) {
	l := newLab(t, sriovtest.Card{Name: "hsn0", Driver: "cxi_core", VFs: 2})
	p := l.mustPool(t)
	pfs, err := p.List()
	if err != nil {
		t.Fatal(err)
	}
	grants, err := p.Acquire(t.Context(), demand(7, jobspec.VF{}))
	if err != nil || grants[0].Settings.VLAN != 0 || grants[0].Settings.MAC == "" || grants[0].Slingshot != pfs[0].PCI || pfs[0].PCI == "" {
		t.Errorf("grants %+v, %v; the card is at %s", grants, err, pfs[0].PCI)
	}
	if _, err := p.Acquire(t.Context(), demand(8, jobspec.VF{MinMbps: 100})); !errors.Is(err, ErrNoFit) {
		t.Errorf("with a minimum: %v", err)
	}
}

// A job's tags are on its VFs as long as these are leased to it, in quarantine, too.
func TestLeftNamesTheVFsOfTheJob(t *testing.T) {
	l := newLab(t, twoCards...)
	p := l.mustPool(t)
	if _, err := p.Acquire(t.Context(), demand(7, jobspec.VF{})); err != nil {
		t.Fatal(err)
	}
	if err := p.Left(7); err == nil || !strings.Contains(err.Error(), "is leased to job 7.0") {
		t.Errorf("of the job: %v", err)
	}
	if err := p.Left(8); err != nil {
		t.Errorf("of another job: %v", err)
	}
	if err := errors.Join(p.Release(t.Context(), journal.ID{Job: 7}), p.Left(7)); err != nil {
		t.Errorf("afterwards: %v", err)
	}
}

func TestOnlyThePFsOfTheSite(t *testing.T) {
	l := newLab(t, twoCards...)
	p := l.mustPool(t)
	p.cfg.PFs = []string{"eth1"}
	if pfs, err := p.List(); err != nil || len(pfs) != 1 || pfs[0].Name != "eth1" {
		t.Errorf("%+v, %v", pfs, err)
	}
}

func TestAVFThatCannotBeRestoredIsInQuarantine(t *testing.T) {
	l := newLab(t, twoCards[0])
	p := l.mustPool(t)
	before := l.node.Snapshot(t)
	if _, err := p.Acquire(t.Context(), demand(7, jobspec.VF{})); err != nil {
		t.Fatal(err)
	}
	l.node.OnEffect = func(op string) error {
		if op == "set vlan" {
			return unix.EINVAL
		}
		return nil
	}
	if err := p.Release(t.Context(), journal.ID{Job: 7}); err == nil {
		t.Fatal("the VLAN stays and nobody says so")
	}
	pfs, err := p.List()
	if err != nil || pfs[0].UsedVFs != 1 || pfs[0].VFs[0].Quarantine == "" {
		t.Errorf("%v, %+v", err, pfs)
	}
	l.node.OnEffect = nil
	if err := p.Release(t.Context(), journal.ID{Job: 7}); err != nil {
		t.Fatal(err)
	}
	l.checkClean(t, before)
}

func TestOrphansAreReleasedAndOthersAreNot(t *testing.T) {
	l := newLab(t, twoCards...)
	p := l.mustPool(t)
	for _, job := range []uint32{7, 8} {
		if _, err := p.Acquire(t.Context(), demand(job, jobspec.VF{})); err != nil {
			t.Fatal(err)
		}
	}
	released, err := p.ReleaseOrphans(t.Context(), func(id journal.ID) bool { return id.Job == 8 })
	if err != nil || len(released) != 1 || released[0].Job != 7 {
		t.Errorf("released %v, %v", released, err)
	}
	if records, _ := p.leases.Read(); len(records) != 1 || records[0].Job.Job != 8 {
		t.Errorf("left: %+v", records)
	}
}

func TestJobsAtOnceShareNoVF(t *testing.T) {
	l := newLab(t, twoCards...)
	before := l.node.Snapshot(t)
	var jobs errgroup.Group
	for job := range uint32(16) {
		jobs.Go(func() error {
			p, err := l.pool(nil)
			if err != nil {
				return err
			}
			id := journal.ID{Job: job + 1}
			for range 5 {
				_, err := p.Acquire(context.Background(), demand(id.Job, jobspec.VF{}, jobspec.VF{}))
				if err != nil && !errors.Is(err, ErrNoFit) {
					return err
				}
				if err := p.Release(context.Background(), id); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := jobs.Wait(); err != nil {
		t.Error(err)
	}
	l.checkClean(t, before)
}

// A process is killed with SIGKILL at each step of acquiring and releasing. The next
// process must find everything that it left.
func TestKilledAtEveryStep(t *testing.T) {
	if os.Getenv("VFPOOL_LAB") != "" {
		liveAndDie(t)
		return
	}
	for _, doing := range []string{"acquire", "release"} {
		t.Run(doing, func(t *testing.T) {
			for step, killed := 1, true; killed; step++ {
				l := newLab(t, twoCards...)
				before := l.node.Snapshot(t)
				if killed = l.runAndKill(t, doing, step); !killed && step < 10 {
					t.Fatalf("there are only %d steps", step)
				}
				if err := l.mustPool(t).Release(t.Context(), journal.ID{Job: 7}); err != nil {
					t.Errorf("killed at step %d: %v", step, err)
				}
				l.checkClean(t, before)
			}
		})
	}
}

func (l lab) runAndKill(t *testing.T, doing string, step int) (killed bool) {
	t.Helper()
	c := exec.Command(os.Args[0], "-test.run=^TestKilledAtEveryStep$")
	c.Env = append(os.Environ(), "VFPOOL_LAB="+l.node.Root, "VFPOOL_STATE="+l.state,
		"VFPOOL_DOING="+doing, "VFPOOL_STEP="+strconv.Itoa(step))
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) && exit.Sys().(syscall.WaitStatus).Signal() == unix.SIGKILL {
		return true
	}
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return false
}

// liveAndDie acquires two VFs, or acquires and releases them, and dies at a step.
func liveAndDie(t *testing.T) {
	node, err := sriovtest.Reopen(os.Getenv("VFPOOL_LAB"))
	if err != nil {
		t.Fatal(err)
	}
	last, _ := strconv.Atoi(os.Getenv("VFPOOL_STEP"))
	steps := make(chan int, 1)
	steps <- 0
	die := func(string) {
		n := <-steps + 1
		steps <- n
		if n >= last {
			_ = unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
	}
	l := lab{node, os.Getenv("VFPOOL_STATE")}
	if os.Getenv("VFPOOL_DOING") == "acquire" {
		l.take(t, die)
		return
	}
	l.take(t, nil)
	p, err := l.pool(die)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Release(t.Context(), journal.ID{Job: 7}); err != nil {
		t.Fatal(err)
	}
}

func (l lab) take(t *testing.T, before func(string)) {
	p, err := l.pool(before)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Acquire(t.Context(), demand(7, jobspec.VF{PF: "eth0", MinMbps: 100}, jobspec.VF{PF: "eth1", MaxMbps: 100})); err != nil {
		t.Fatal(err)
	}
}

func TestGRESLines(t *testing.T) {
	var text strings.Builder
	pfs := []PF{{CapVFs: 8, Capacity: 95000}, {CapVFs: 7, Capacity: 950}, {CapVFs: 4, Capacity: 9, Unusable: "down"}}
	if err := WriteGRES(&text, "n1", pfs); err != nil {
		t.Fatal(err)
	}
	for _, line := range []string{"NodeName=n1 Name=vf Count=15 Flags=CountOnly\n", "NodeName=n1 Name=vfbw Count=95950 Flags=CountOnly\n", "Gres=vf:15,vfbw:95950"} {
		if !strings.Contains(text.String(), line) {
			t.Errorf("%q is missing in\n%s", line, text.String())
		}
	}
}
