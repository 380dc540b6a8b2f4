package controller

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// The files whose locks say that a process asks slurmctld, or the managers, or goes on doing
// so after a job's end.
const (
	sweepLock    = "slurm-v-fabric.sweep"
	managersLock = "slurm-v-fabric.managers"
	lingerLock   = "slurm-v-fabric.linger"
)

// locks is the directory of these files, that of the ledger.
type locks string

// wait waits until no other process has a lock.
func (l locks) wait(ctx context.Context, name string) (unlock func(), err error) {
	for {
		unlock, taken, err := l.try(name)
		if err != nil || !taken {
			return unlock, err
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another process that looks after the fabric's ledger: %w", ctx.Err())
		}
	}
}

// try takes a lock unless another process has it. The files belong to SlurmUser: root has become
// that user (see [Open]).
func (l locks) try(name string) (unlock func(), taken bool, err error) {
	f, err := os.OpenFile(filepath.Join(string(l), name), os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, false, fmt.Errorf("lock the fabric's ledger: %w", err)
	}
	switch err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err {
	case nil:
		return func() { f.Close() }, false, nil
	case unix.EWOULDBLOCK:
		f.Close()
		return nil, true, nil
	default:
		f.Close()
		return nil, false, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
}

// knock tells the process that has the lock of something new.
func (l locks) knock(name string) error {
	now := time.Now()
	if err := os.Chtimes(filepath.Join(string(l), name), now, now); err != nil {
		return fmt.Errorf("tell the process that looks after the fabric's ledger of a job's end: %w", err)
	}
	return nil
}

// knocked returns when somebody has knocked last.
func (l locks) knocked(name string) time.Time {
	info, err := os.Stat(filepath.Join(string(l), name))
	if err != nil {
		return time.Time{}
	}
	return info.ModTime()
}
