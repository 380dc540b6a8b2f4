package ledger

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/fabric"
)

// BenchmarkReserve measures what a reservation costs beside others that live: open the file,
// reserve, close it, as the command does. The tags of the job are given back between two
// measurements. It uses a directory on a real disk: on a tmpfs the syncs cost nothing.
func BenchmarkReserve(b *testing.B) {
	for _, live := range []int{0, 5000} {
		for name, pool := range map[string]fabric.Pool{
			"of a large pool":        vnis(1024, 65535),
			"of a pool that is full": vnis(1024, 1024+fabric.Tag(live)+1),
		} {
			b.Run(fmt.Sprintf("%d live, %s", live, name), func(b *testing.B) { benchmarkReserve(b, live, pool) })
		}
	}
}

func benchmarkReserve(b *testing.B, live int, pool fabric.Pool) {
	path := filepath.Join(b.TempDir(), "ledger")
	l, err := Open(b.Context(), path)
	noError(b, err)
	l.db.NoSync = true
	for i := range live {
		_, err := l.Reserve(request(id(uint32(i)), Want{Pool: pool, Count: 1}), Options{}, time.Now())
		noError(b, err)
	}
	noError(b, l.db.Sync(), l.Close())
	var times []time.Duration
	for b.Loop() {
		job := id(uint32(live + len(times)))
		start := time.Now()
		noError(b, withLedger(path, func(l *Ledger) error {
			_, err := l.Reserve(request(job, Want{Pool: pool, Count: 1}), Options{}, time.Now())
			return err
		}))
		times = append(times, time.Since(start))
		b.StopTimer()
		noError(b, withLedger(path, func(l *Ledger) error { return finish(l, job) }))
		b.StartTimer()
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
}

func withLedger(path string, do func(*Ledger) error) error {
	l, err := Open(context.Background(), path)
	if err != nil {
		return err
	}
	return errors.Join(do(l), l.Close())
}
