package software

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/netlab"
	"github.com/slurm-v/slurm-v/vfpool/device"
)

// BenchmarkAttachAndRestore measures how long a job waits per VF.
func BenchmarkAttachAndRestore(b *testing.B) {
	l := newLab(b)
	l.attach(vf(1), settings(1)) // so that the IFB stays
	for b.Loop() {
		l.attach(vf(0), settings(0))
		l.restore(vf(0))
	}
}

// BenchmarkSharing has three VMs, with minima of 60, 30 and 10 of 100 Mb/s, send more
// than they may for a second, and reports how much of it arrives. bench/vf-sharing
// measures this in more detail.
func BenchmarkSharing(b *testing.B) {
	l := newLab(b)
	l.pool = Open(config.VF{Software: map[string]config.SoftwarePF{"soft0": {Bridge: "br0", Rate: 100, VFs: 4}}}, true)
	far, err := netlab.NewNode()
	if err != nil {
		b.Fatal(err)
	}
	defer far.Close()
	mac, err := l.node.Connect("br0", far, netip.MustParsePrefix("10.1.0.100/24"))
	if err != nil {
		b.Fatal(err)
	}
	ctx, cancel := context.WithCancel(b.Context())
	var wait sync.WaitGroup
	var sinks []*netlab.Sink
	minima := []uint32{60, 30, 10}
	for i, least := range minima {
		set := settings(i)
		set.MinRate = least
		g := l.boot(device.VF{PF: "soft0", Index: i}, set)
		to := netip.AddrPortFrom(netip.MustParseAddr("10.1.0.100"), uint16(1000+i))
		sink, err := far.Sink(to)
		if err != nil {
			b.Fatal(err)
		}
		defer sink.Close()
		sinks = append(sinks, sink)
		flow := netlab.Flow{FromMAC: g.MAC, ToMAC: mac, From: netip.AddrPortFrom(g.Addr, 9), To: to}
		wait.Go(func() {
			if err := g.Flood(ctx, flow, 120e6); err != nil {
				b.Error(err)
			}
		})
	}
	time.Sleep(500 * time.Millisecond) // ports come up, queues fill
	before := counts(sinks)
	b.ResetTimer()
	for range b.N {
		time.Sleep(time.Second)
	}
	b.StopTimer()
	after, seconds := counts(sinks), b.Elapsed().Seconds()
	for i, name := range []string{"Mb/s-of-60", "Mb/s-of-30", "Mb/s-of-10"} {
		b.ReportMetric(float64(after[i]-before[i])*8/1e6/seconds, name)
	}
	cancel()
	wait.Wait()
}

func counts(sinks []*netlab.Sink) (bytes []uint64) {
	for _, s := range sinks {
		bytes = append(bytes, s.Bytes())
	}
	return bytes
}
