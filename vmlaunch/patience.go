package vmlaunch

import (
	"context"
	"time"
)

// patienceStep is how often withPatience counts down.
const patienceStep = time.Second

// withPatience is [context.WithTimeout] that does not count the time in which this process
// was stopped. Slurm stops and continues all processes of a job at once (scontrol suspend),
// so the process that is waited for was stopped too. The context's cause is
// context.DeadlineExceeded.
func withPatience(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	go func() {
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
		cancel(context.DeadlineExceeded)
	}()
	return ctx, func() { cancel(nil) }
}

// counted returns how much of the time between two ticks counts. A tick may be late on a
// loaded machine; if it is much too late, the process was stopped.
func counted(passed time.Duration) time.Duration {
	return min(passed, 3*patienceStep)
}
