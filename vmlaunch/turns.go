package vmlaunch

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/slurm-v/slurm-v/config"
	"github.com/slurm-v/slurm-v/internal/nodeagent"
	"github.com/slurm-v/slurm-v/vmlaunch/machine"
	"github.com/slurm-v/slurm-v/vmlaunch/plan"
)

// How many guests come up at once on a CPU. Those that boot wait for disks, devices and
// timers most of the time. Those that are emulated, or restored, do not: more of them than
// CPUs take up to twice the CPU time, each for the timers that went off while it had none.
const (
	waitingPerCPU = 8
	busyPerCPU    = 1
)

// busyGuests tells whether guests keep a CPU busy all the time until they are ready, but for
// what their images wait for.
func (v *VMs) busyGuests() bool {
	return v.warmer.from != nil || v.Plan.Hardware.Accel == config.AccelTCG
}

// parallel is how many VMs of a job may come up at once on a node where the job may use so
// many CPUs, and whether that is the site's word. It is no bound on all jobs of the node together: a user
// whose guests never come up would hold up the others for as long as his time-out.
func parallel(p plan.Plan, cpus int, busy bool) (at int64, bySite bool) {
	switch {
	case p.Measure.Serial:
		return 1, true
	case p.Launch.Parallel > 0:
		return int64(p.Launch.Parallel), true
	case busy:
		return busyPerCPU * int64(cpus), false
	}
	return waitingPerCPU * int64(cpus), false
}

// turns are those of VMs to come up.
type turns struct {
	free  *semaphore.Weighted
	early bool // turns end early
}

// newTurns are for so many VMs. Where none has to wait, none is watched.
func newTurns(p plan.Plan, cpus int, busy bool, vms int) turns {
	at, bySite := parallel(p, cpus, busy)
	return turns{semaphore.NewWeighted(at), !bySite && int64(vms) > at}
}

// take returns when the VM has a turn.
func (t turns) take(ctx context.Context, m *machine.Machine) (turn, error) {
	if !t.free.TryAcquire(1) {
		m.Enter(nodeagent.StageWait)
		if err := t.free.Acquire(ctx, 1); err != nil {
			return turn{}, err
		}
	}
	return turn{sync.OnceFunc(func() { t.free.Release(1) }), t.early}, nil
}

// A turn lasts until the VM is ready or, if it may end early, until its guest computes no
// more but waits for something.
type turn struct {
	end   func()
	early bool
}

// A guest waits when it has wanted less than a fifth of a CPU for so long.
const (
	idleFor  = 500 * time.Millisecond
	idlePart = 5
)

// watch ends the turn early. computed returns how long the guest has computed, or would
// have, had there been a CPU for it; an error is the end of watching.
func (t turn) watch(ctx context.Context, computed func() (time.Duration, error)) {
	if !t.early {
		return
	}
	tick := time.NewTicker(idleFor)
	defer tick.Stop()
	before, err := computed()
	for err == nil {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		var now time.Duration
		if now, err = computed(); err == nil && now-before < idleFor/idlePart {
			t.end()
			return
		}
		before = now
	}
}
