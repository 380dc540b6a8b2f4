package vmlaunch

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slurm-v/slurm-v/images"
	"github.com/slurm-v/slurm-v/internal/play"
	"github.com/slurm-v/slurm-v/jobspec"
	"github.com/slurm-v/slurm-v/journal"
)

// novasLibvirtd is a libvirtd, libvirt's driver for tests, in which nova runs these servers. Their UUIDs are given.
func novasLibvirtd(t *testing.T, uuids map[string]string) string {
	t.Helper()
	const domain = `<domain type="test"><name>instance-%08x</name><uuid>%s</uuid><memory>8192</memory><os><type>hvm</type></os>
<metadata><nova:instance xmlns:nova="http://openstack.org/xmlns/libvirt/nova/1.1"><nova:name>%s</nova:name></nova:instance></metadata></domain>`
	var all strings.Builder
	for server, uuid := range uuids {
		fmt.Fprintf(&all, domain, all.Len(), uuid, server)
	}
	path := filepath.Join(t.TempDir(), "node.xml")
	if err := os.WriteFile(path, []byte("<node>"+all.String()+"</node>"), 0o600); err != nil {
		t.Fatal(err)
	}
	return "test://" + path
}

// A job that ends while nova starts its VMs has no UUIDs of theirs. They are found by their servers' names and end like those
// that the job has seen. VMs of other jobs stay.
func TestVMsThatNovaStartsLateEndWithTheirJob(t *testing.T) {
	const own, other = "5e1f5e1f-2222-4333-8444-555555555555", "5e1f5e1f-2222-4333-8444-666666666666"
	n := aJob(t, stateIn(t.TempDir()), 42, jobspec.IVShmem{})
	n.store.novaPatience, n.store.startPatience = time.Second, time.Second
	n.store.backend.Libvirt = novasLibvirtd(t, map[string]string{"slurmv-42.0-vm0-0123": own, "slurmv-43.0-vm0-4567": other})
	if err := errors.Join(
		n.journal.Intend(recordAwaited, "slurmv-42.0-vm0-0123", nil),
		n.journal.Intend(recordAwaited, "slurmv-42.0-vm1-89ab", nil)); err != nil {
		t.Fatal(err)
	}
	ownQEMU, otherQEMU := asQEMU(t, own, "1000"), asQEMU(t, other, "1000")
	if failed, files := n.store.undoAll(t.Context(), n.journal); failed != nil || files != nil {
		t.Error(failed, files)
	}
	if !play.HasEnded(t, ownQEMU.Process.Pid) {
		t.Error("the VM outlives its job")
	}
	if play.HasEnded(t, otherQEMU.Process.Pid) {
		t.Error("the VM of another job has ended")
	}
	if left := n.journal.Held(); len(left) != 0 {
		t.Errorf("the journal still has %v", left)
	}
}

// nova may still be at it when the job ends, and start a VM some seconds later.
func TestAReclaimLooksForAwaitedVMs(t *testing.T) {
	const server, uuid = "slurmv-42.0-vm0-0123", "5e1f5e1f-2222-4333-8444-555555555555"
	away := errors.New("libvirtd is away")
	for name, tt := range map[string]struct {
		starts   time.Duration // after the job's end; 0 is never
		broken   error
		patience time.Duration
		deadline time.Duration // of the reclaim
		want     error
		holds    string
		servers  bool // nova has not deleted the job's servers
	}{
		"it starts meanwhile":            {5 * time.Second, nil, 15 * time.Second, time.Hour, nil, recordInstance, false},
		"it starts at the last moment":   {14900 * time.Millisecond, nil, 15 * time.Second, time.Hour, nil, recordInstance, false},
		"it never starts":                {0, nil, 15 * time.Second, time.Hour, nil, "", false},
		"the next reclaim has more time": {0, nil, 15 * time.Second, time.Second, context.DeadlineExceeded, recordAwaited, false},
		"libvirtd does not answer":       {0, away, 15 * time.Second, time.Hour, away, recordAwaited, false},
		"nova refuses to delete them":    {0, nil, 15 * time.Second, time.Hour, nil, recordAwaited, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				j, err := journal.Create(t.TempDir(), journal.ID{Job: 42}, journal.Header{Node: "n1"})
				if err != nil {
					t.Fatal(err)
				}
				defer j.Close()
				err = j.Intend(recordAwaited, server, nil)
				if err == nil && tt.servers {
					err = j.Intend(recordServers, "42.0", nil)
				}
				if err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				look := func(servers ...string) (map[string]string, error) {
					if diff := cmp.Diff([]string{server}, servers); diff != "" {
						t.Error(diff)
					}
					if tt.starts > 0 && time.Since(began) >= tt.starts {
						return map[string]string{server: uuid}, tt.broken
					}
					return nil, tt.broken
				}
				ctx, cancel := context.WithTimeout(t.Context(), tt.deadline)
				defer cancel()
				waiting, giveUp := context.WithTimeout(ctx, tt.patience)
				defer giveUp()
				if err := seek(ctx, waiting, look, j); !errors.Is(err, tt.want) {
					t.Error(err)
				}
				for _, kind := range []string{recordInstance, recordAwaited} {
					if has := len(named(j, kind)) == 1; has != (kind == tt.holds) {
						t.Errorf("the journal has %s: %v", kind, has)
					}
				}
			})
		})
	}
}

// Before it waits, a node writes down which VMs nova may start there: the first one when it asks for them, others at once.
func TestANodeWritesDownWhichVMsItAwaits(t *testing.T) {
	for rank, want := range []int{0, 2} {
		c := inTheCloud(t)
		c.Plan.Job.Rank, c.Plan.Backend.CloudsFile, c.Plan.Backend.Libvirt = rank, cloudsFile(t), "test:///default"
		j, err := journal.Create(t.TempDir(), c.Plan.Job.ID, journal.Header{Node: "n1"})
		if err != nil {
			t.Fatal(err)
		}
		defer j.Close()
		c.journal = j
		if err := c.open(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer c.close()
		if held := named(j, recordAwaited); len(held) != want {
			t.Errorf("rank %d awaits %v", rank, held)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		_ = c.request(ended, images.Info{}) // nobody answers
		held := named(j, recordAwaited)
		slices.Sort(held)
		if diff := cmp.Diff([]string{c.names.Server("slurmv-7.0-vm0"), c.names.Server("slurmv-7.0-vm1")}, held); diff != "" {
			t.Errorf("rank %d: %s", rank, diff)
		}
	}
}
