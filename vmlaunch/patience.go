package vmlaunch

import (
	"context"
	"time"
)

// patienceStep is how often the time is looked at that something still has.
const patienceStep = time.Second

// withPatience is [context.WithTimeout] that does not count the time in which this
// process was stopped. Slurm stops and continues all processes of a job at once
// (scontrol suspend): what is waited for, too, had no chance then. Its cause is
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

// counted is what counts of the time between two looks. A machine under load may be
// late; what is much too late was stopped.
func counted(passed time.Duration) time.Duration {
	return min(passed, 3*patienceStep)
}
