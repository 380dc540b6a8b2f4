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

// How many guests come up at once on a CPU. Guests that boot with KVM mostly wait for
// disks, devices and timers. Emulated and restored guests keep a CPU busy: if there are
// more of them than CPUs, they need up to twice the CPU time, because each handles the
// timers that expired while it had no CPU.
const (
	waitingPerCPU = 8
	busyPerCPU    = 1
)

// busyGuests tells whether guests keep a CPU busy until they are ready, except when their
// images wait for something.
func (v *VMs) busyGuests() bool {
	return v.warmer.from != nil || v.Plan.Hardware.Accel == config.AccelTCG
}

// parallel returns how many VMs of a job may come up at once on a node where the job may
// use cpus CPUs, and whether the site sets this number. It does not bound the VMs of all
// jobs on the node: a user whose guests never come up would hold up the other jobs until
// the time-out.
func parallel(p plan.Plan, cpus int, busy bool) (at int64, bySite bool) {
	switch {
	case p.Hardware.Foreign: // they boot already, and their seed disks must be there when cloud-init looks
		return int64(len(p.VMs)), true
	case p.Measure.Serial:
		return 1, true
	case p.Launch.Parallel > 0:
		return int64(p.Launch.Parallel), true
	case busy:
		return busyPerCPU * int64(cpus), false
	}
	return waitingPerCPU * int64(cpus), false
}

// turns hands out the turns of a job's VMs to come up.
type turns struct {
	free  *semaphore.Weighted
	early bool // turns end early
}

// newTurns makes the turns for vms VMs. If no VM has to wait for a turn, turns do not end
// early, so guests are not watched.
func newTurns(p plan.Plan, cpus int, busy bool, vms int) turns {
	at, bySite := parallel(p, cpus, busy)
	return turns{semaphore.NewWeighted(at), !bySite && int64(vms) > at}
}

// take waits until the VM has a turn.
func (t turns) take(ctx context.Context, m *machine.Machine) (turn, error) {
	if !t.free.TryAcquire(1) {
		m.Enter(nodeagent.StageWait)
		if err := t.free.Acquire(ctx, 1); err != nil {
			return turn{}, err
		}
	}
	return turn{sync.OnceFunc(func() { t.free.Release(1) }), t.early}, nil
}

// A turn is a VM's right to come up. It lasts until the VM is ready or, if it may end
// early, until the guest stops computing and only waits.
type turn struct {
	end   func()
	early bool
}

// A guest counts as waiting when it has wanted less than 1/idlePart of a CPU during
// idleFor.
const (
	idleFor  = 500 * time.Millisecond
	idlePart = 5
)

// watch ends the turn early, once the guest waits. computed returns how long the guest has
// computed or waited for a CPU; watch stops if computed returns an error.
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
