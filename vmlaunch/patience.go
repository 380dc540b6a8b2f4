package vmlaunch

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/slurm-v/slurm-v/vmlaunch/machine"
)

// patienceStep is how often withPatience counts down.
const patienceStep = time.Second

// withPatience is [context.WithTimeout] that does not count the time in which this process
// was stopped. Slurm stops and continues all processes of a job at once (scontrol suspend),
// so the process that is waited for was stopped too. The context's cause is
// context.DeadlineExceeded.
func withPatience(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go countDown(ctx, d, cancel)
	return ctx, func() { cancel(nil) }
}

// withPatienceFrom is withPatience that counts only the time after begin is closed.
func withPatienceFrom(ctx context.Context, begin <-chan struct{}, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
		select {
		case <-begin:
			countDown(ctx, d, cancel)
		case <-ctx.Done():
		}
	}()
	return ctx, func() { cancel(nil) }
}

// withPatienceFor is withPatience for the guest of a VM. The context ends with the VM, too.
func withPatienceFor(ctx context.Context, m *machine.Machine, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := withPatience(ctx, d)
	go func() {
		select {
		case <-m.Ended():
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, cancel
}

func countDown(ctx context.Context, d time.Duration, end context.CancelCauseFunc) {
	ticker := time.NewTicker(patienceStep)
	defer ticker.Stop()
	for last := time.Now(); d > 0; {
		select {
		case <-ctx.Done():
			return
		case now := <-ticker.C:
			d -= counted(now.Sub(last))
			last = now
		}
	}
	end(context.DeadlineExceeded)
}

// counted returns how much of the time between two ticks counts. A tick may be late on a
// loaded machine; if it is much too late, the process was stopped.
func counted(passed time.Duration) time.Duration {
	return min(passed, 3*patienceStep)
}

// serveWithin starts servers of the job's owner. A start waits for the file servers of the
// owner's directories, which may never answer.
func serveWithin(ctx context.Context, d time.Duration, serve func(context.Context) error) error {
	ctx, cancel := withPatience(ctx, d)
	defer cancel()
	err := serve(ctx)
	if errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: the node or a file server has not answered within %v (--vm-ready-timeout)", err, d)
	}
	return err
}
