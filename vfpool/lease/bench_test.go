package lease

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/journal"
	"github.com/slurm-v/slurm-v/vfpool/device"
)

// BenchmarkLeaseAndRelease measures what a job's VF costs the pool: lock, read all
// leases, write the new one to disk, unlock; lock, release, unlock. It uses a directory
// on a real disk: on a tmpfs the syncs cost nothing.
func BenchmarkLeaseAndRelease(b *testing.B) {
	for _, held := range []int{0, 64, 128, 255} {
		b.Run(fmt.Sprintf("%d of 256 VFs are leased", held), func(b *testing.B) {
			s := benchStore(b, 256, held)
			var times []time.Duration
			for b.Loop() {
				start := time.Now()
				leaseAndRelease(b, s, 255)
				times = append(times, time.Since(start))
			}
			slices.Sort(times)
			b.ReportMetric(float64(times[len(times)/2].Microseconds()), "median-µs")
			b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
		})
	}
}

func benchVF(index int) device.VF {
	address := fmt.Sprintf("0000:%02x:%02x.%d", index/256, index/8%32, index%8)
	return device.VF{PF: "enp65s0f0np0", Kind: device.SRIOV, Index: index, PCI: address, Device: address, Group: index}
}

// benchStore returns a store that knows vfs VFs, the first held of which are leased.
func benchStore(b *testing.B, vfs, held int) *Store {
	s, err := Open(filepath.Join(b.TempDir(), "vf"))
	noError(b, err)
	l, err := s.Lock(context.Background())
	noError(b, err)
	defer l.Unlock()
	settings := device.Settings{MAC: "02:00:00:00:00:01", VLAN: 2017, MinRate: 10000, MaxRate: 20000, SpoofCheck: true, Link: device.LinkAuto}
	for i := range vfs {
		r := put(b, l, Lease{VF: benchVF(i), Job: journal.ID{Job: 4217}, Want: settings})
		r.Phase, r.Original = Attached, &device.State{Settings: settings, Driver: "mlx5_core"}
		noError(b, s.Update(r))
		if i >= held {
			noError(b, l.Delete(r))
		}
	}
	return s
}

func leaseAndRelease(b *testing.B, s *Store, index int) {
	l, err := s.Lock(context.Background())
	noError(b, err)
	_, err = l.All()
	noError(b, err)
	r := put(b, l, Lease{VF: benchVF(index), Job: job})
	l.Unlock()
	l, err = s.Lock(context.Background())
	noError(b, err)
	noError(b, l.Delete(r))
	l.Unlock()
}

func BenchmarkUpdate(b *testing.B) {
	s := benchStore(b, 1, 1)
	all, err := s.Read()
	noError(b, err)
	for b.Loop() {
		noError(b, s.Update(all[0]))
	}
}
