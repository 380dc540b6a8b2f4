package controller

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/fabric"
	"github.com/slurm-v/slurm-v/fabric/ledger"
	"github.com/slurm-v/slurm-v/slurm"
)

// BenchmarkReserve measures what PrologSlurmctld costs without Slurm's commands, beside other
// reservations that live, and beside others that have ended and that nodes do not confirm. It uses
// a directory on a real disk: on a tmpfs the syncs cost nothing.
func BenchmarkReserve(b *testing.B) {
	for _, state := range []string{"live", "ended", "cooling"} {
		for _, others := range []int{0, 5000} {
			b.Run(fmt.Sprintf("%d %s", others, state), func(b *testing.B) { benchmarkReserve(b, others, state) })
		}
	}
}

func benchmarkReserve(b *testing.B, others int, state string) {
	c := &Controller{Site: config.Fabric{Cooling: 30}, Cluster: "c", Instance: "boot 1 1", Dir: b.TempDir(), Now: time.Now}
	mustFill(b, c, others, state)
	var times []time.Duration
	for b.Loop() {
		start := time.Now()
		run := slurm.RunID{Job: uint32(others + len(times) + 1)}
		if _, err := (giving{c, hook(run), nil}).tryReserve(context.Background(), requestOfBench(run), c.options()); err != nil {
			b.Fatal(err)
		}
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	b.ReportMetric(float64(times[len(times)/2].Microseconds()), "p50-µs")
	b.ReportMetric(float64(times[len(times)*99/100].Microseconds()), "p99-µs")
}

func requestOfBench(run slurm.RunID) ledger.Request {
	pool := fabric.Pool{Name: "vni", Kind: fabric.VNI, Tags: []fabric.Range{{First: 1024, Last: 65535}}}
	return ledger.Request{
		Reservation: fabric.Reservation{Cluster: "c", Job: idOf(run), UID: 1000}, Nodes: []string{"n1", "n2"},
		Wants: []ledger.Want{{Pool: pool, Count: 1}},
	}
}

// mustFill makes other jobs.
func mustFill(b *testing.B, c *Controller, others int, state string) {
	b.Helper()
	err := c.with(context.Background(), func(l *ledger.Ledger) error {
		for i := range others {
			run := slurm.RunID{Job: uint32(i + 1)}
			if _, err := l.Reserve(requestOfBench(run), c.options(), c.Now()); err != nil {
				return err
			}
			if err := finish(l, run, state, c.Now()); err != nil {
				return err
			}
		}
		return l.SetInstance(c.Instance)
	})
	if err != nil {
		b.Fatal(err)
	}
}

func finish(l *ledger.Ledger, run slurm.RunID, state string, now time.Time) error {
	job := idOf(run)
	err := l.Tell(job)
	if err != nil || state == "live" {
		return err
	}
	if err = l.End(job, now); err != nil || state == "ended" {
		return err
	}
	return l.Confirm([]ledger.Confirmation{{Job: job, Node: "n1"}, {Job: job, Node: "n2"}}, now)
}
