package controller

import (
	"context"
	"time"
)

// The pauses between the sweeps after a job's end grow from the first to the last. After
// lingering, what has not been confirmed waits for the next job's end, or for one that needs
// the tags. While jobs have multicast addresses, the pauses are stepsPause at most, as those of
// Slurm's own plugin: a step may end without giving back its own.
const (
	firstPause = time.Second
	lastPause  = time.Minute
	stepsPause = 30 * time.Second
	lingering  = 10 * time.Minute
)

// SweepUntilQuiet sweeps until ended jobs wait for nobody, and no job has multicast addresses. If
// another process does so already, it tells that one, and returns.
func (c *Controller) SweepUntilQuiet(ctx context.Context) error {
	unlock, err := c.lockLinger(ctx)
	if err != nil || unlock == nil {
		return err
	}
	defer unlock()
	return c.linger().run(ctx)
}

// lockLinger returns nil if another process goes on sweeping. That one may be about to stop
// without having seen the end of our job: hence the second look.
func (c *Controller) lockLinger(ctx context.Context) (unlock func(), err error) {
	unlock, taken, err := locks(c.Dir).try(lingerLock)
	if err != nil || !taken {
		return unlock, err
	}
	if err := locks(c.Dir).knock(lingerLock); err != nil {
		return nil, err
	}
	if err := sleep(ctx, firstPause); err != nil {
		return nil, err
	}
	unlock, _, err = locks(c.Dir).try(lingerLock)
	return unlock, err
}

// A linger is the process that goes on sweeping. Others knock at its lock when their jobs
// have ended, or begin with multicast addresses.
type linger struct {
	*Controller
	begin time.Time     // when the last job ended
	pause time.Duration // before the next sweep
	heard time.Time     // the last knock that it has heard
	steps bool          // jobs go on that have multicast addresses
}

func (c *Controller) linger() *linger {
	return &linger{Controller: c, begin: c.Now(), pause: firstPause, heard: locks(c.Dir).knocked(lingerLock)}
}

func (l *linger) run(ctx context.Context) error {
	for {
		if err := l.wait(ctx); err != nil {
			return err
		}
		news, err := l.Sweep(ctx)
		if err != nil {
			l.warn("%v", err)
		}
		if news > 0 {
			l.pause = firstPause
		}
		entries, err := l.look(ctx)
		if err != nil {
			return err
		}
		l.steps = l.Fabric != nil && len(inSession(entries)) > 0
		if !l.steps && (!waiting(entries) || l.late()) {
			return nil
		}
	}
}

// wait pauses, and less if another job ends: its nodes confirm within seconds, while this
// process may be waiting for one that is down. A node's statement names the last jobs only,
// so a long pause could miss some.
func (l *linger) wait(ctx context.Context) error {
	for left := l.pause; left > 0; left -= firstPause {
		if err := sleep(ctx, min(left, firstPause)); err != nil {
			return err
		}
		if l.newEnd() {
			l.begin, l.pause, l.heard = l.Now(), firstPause, locks(l.Dir).knocked(lingerLock)
			return nil
		}
	}
	l.pause = min(2*l.pause, l.longest())
	return nil
}

func (l *linger) longest() time.Duration {
	if l.steps {
		return stepsPause
	}
	return lastPause
}

// newEnd reports whether another process has knocked.
func (l *linger) newEnd() bool { return !locks(l.Dir).knocked(lingerLock).Equal(l.heard) }

func (l *linger) late() bool { return l.Now().Sub(l.begin) > lingering && !l.newEnd() }

func sleep(ctx context.Context, long time.Duration) error {
	select {
	case <-time.After(long):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
