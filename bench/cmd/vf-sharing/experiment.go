package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/netlab"
	"github.com/slurm-v/slurm-v/internal/owner"
	"github.com/slurm-v/slurm-v/vfpool/device"
	"github.com/slurm-v/slurm-v/vfpool/software"
)

const iterations = 40

// A sender is a VM that sends as much as it can from iteration first to last.
type sender struct {
	name        string
	percent     uint32 // its minimum, of the link
	first, last int
}

var senders = []sender{{"video", 60, 1, 20}, {"AI", 30, 6, 30}, {"file", 10, 11, 40}}

func (s sender) sends(iteration int) bool { return s.first <= iteration && iteration <= s.last }

// An experiment is one run of all senders, with minima or without.
type experiment struct {
	link     config.Rate
	interval time.Duration
	minima   bool
}

// A result says how much of each sender arrived in each iteration, in Mb/s.
type result struct {
	experiment
	samples [iterations][]float64
}

// expected returns how much of each sender should arrive in an iteration. The active
// senders share the link, in proportion to their minima or equally.
func (e experiment) expected(iteration int) []float64 {
	weights, sum := make([]float64, len(senders)), 0.0
	for i, s := range senders {
		if s.sends(iteration) {
			weights[i] = 1
			if e.minima {
				weights[i] = float64(s.percent)
			}
			sum += weights[i]
		}
	}
	for i := range weights {
		weights[i] *= float64(e.link) / sum
	}
	return weights
}

const (
	bridge = "br0"
	pf     = "soft0"
)

// A bed is the two nodes of an experiment and the link between them.
type bed struct {
	near, far *netlab.Node
	vfs       *software.Bridges
	mac       net.HardwareAddr // of the far node
}

var farAddr = netip.MustParseAddr("10.1.0.100")

func (e experiment) run() (r result, err error) {
	b, err := e.lay()
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, b.near.Close(), b.far.Close()) }()
	var flows []*flow
	for i := range senders {
		f, err := b.boot(e, i)
		if err != nil {
			return r, fmt.Errorf("%s: %w", senders[i].name, err)
		}
		flows = append(flows, f)
	}
	r.experiment = e
	return r, r.measure(flows)
}

func (e experiment) lay() (b bed, err error) {
	if b.near, err = netlab.NewNode(); err != nil {
		return b, fmt.Errorf("%w; run as root", err)
	}
	if b.far, err = netlab.NewNode(); err != nil {
		return b, err
	}
	if err := b.near.Bridge(bridge); err != nil {
		return b, err
	}
	b.mac, err = b.near.Connect(bridge, b.far, netip.PrefixFrom(farAddr, 24))
	b.vfs = software.Open(config.VF{Software: map[string]config.SoftwarePF{
		pf: {Bridge: bridge, Rate: e.link, VFs: len(senders), NUMA: -1},
	}}, false)
	return b, err
}

// A flow is the packets of one sender, and their counter at the far node.
type flow struct {
	guest *netlab.Guest
	sink  *netlab.Sink
	netlab.Flow

	stop context.CancelFunc
	done chan error
}

// boot gives sender i a VF and opens it.
func (b bed) boot(e experiment, i int) (*flow, error) {
	mac := net.HardwareAddr{2, 0, 0, 0, 0, byte(i)}
	set := device.Settings{MAC: mac.String(), SpoofCheck: true}
	if e.minima {
		set.MinRate = uint32(e.link) * senders[i].percent / 100
	}
	tap, err := b.attach(i, set)
	if err != nil {
		return nil, err
	}
	from := netip.AddrFrom4([4]byte{10, 1, 0, byte(1 + i)})
	guest, err := b.near.Plug(tap, mac, from)
	if err != nil {
		return nil, err
	}
	to := netip.AddrPortFrom(farAddr, uint16(1000+i))
	sink, err := b.far.Sink(to)
	return &flow{guest: guest, sink: sink, Flow: netlab.Flow{
		FromMAC: mac, ToMAC: b.mac, From: netip.AddrPortFrom(from, 9), To: to,
	}}, err
}

func (b bed) attach(index int, set device.Settings) (tap string, err error) {
	return tap, b.near.Do(func() error {
		pfs, err := b.vfs.PFs()
		if err != nil {
			return err
		}
		vf := pfs[0].VFs[index]
		tap = vf.Device
		if err := b.vfs.Apply(context.Background(), vf, set); err != nil {
			return err
		}
		return b.vfs.Attach(context.Background(), vf, owner.IDs{})
	})
}

// measure starts and stops the flows and counts once per iteration.
func (r *result) measure(flows []*flow) error {
	last, since := make([]uint64, len(flows)), time.Now()
	next := time.NewTicker(r.interval)
	defer next.Stop()
	for iteration := 1; iteration <= iterations; iteration++ {
		if err := r.direct(flows, iteration); err != nil {
			return err
		}
		now := <-next.C
		for i, f := range flows {
			bytes := f.sink.Bytes()
			r.samples[iteration-1] = append(r.samples[iteration-1], float64(bytes-last[i])*8/1e6/now.Sub(since).Seconds())
			last[i] = bytes
		}
		since = now
	}
	return closeAll(flows)
}

// direct starts and stops flows, so that only the senders of this iteration send.
func (r *result) direct(flows []*flow, iteration int) error {
	for i, f := range flows {
		switch sends := senders[i].sends(iteration); {
		case sends && f.stop == nil:
			f.start(float64(r.link) * 1e6)
		case !sends && f.stop != nil:
			if err := f.end(); err != nil {
				return err
			}
		}
	}
	return nil
}

// start sends more than the link can carry.
func (f *flow) start(link float64) {
	var ctx context.Context
	ctx, f.stop = context.WithCancel(context.Background())
	f.done = make(chan error, 1)
	go func() { f.done <- f.guest.Flood(ctx, f.Flow, 1.2*link) }()
}

func (f *flow) end() error {
	f.stop()
	f.stop = nil
	return <-f.done
}

func closeAll(flows []*flow) error {
	var errs []error
	for _, f := range flows {
		if f.stop != nil {
			errs = append(errs, f.end())
		}
		errs = append(errs, f.guest.Close(), f.sink.Close())
	}
	return errors.Join(errs...)
}
