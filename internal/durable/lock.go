package durable

import (
	"context"
	"errors"
	"fmt"
	"os"

	"github.com/gofrs/flock"
	"golang.org/x/sys/unix"
)

// ErrLocked matches the error if another process has the lock.
var ErrLocked = errors.New("another process has the lock")

// A Held is an exclusive lock that the caller holds. The kernel releases it when the
// process ends.
type Held struct{ lock *flock.Flock }

// Close releases the lock.
func (h *Held) Close() error { return h.lock.Unlock() }

// TryLock takes the lock on path, a file or a directory, or returns an error that is
// [ErrLocked]. flags are os.O_CREATE, which makes the file if it is missing, or 0.
func TryLock(path string, flags int) (*Held, error) {
	return lockNamed(path, flags, try)
}

// Lock is [TryLock], but waits for the lock until ctx is done. The error then matches
// ctx's cause and [ErrLocked].
func Lock(ctx context.Context, path string, flags int) (*Held, error) {
	return lockNamed(path, flags, func(lock *flock.Flock) error { return wait(ctx, lock) })
}

// lockNamed takes the lock on the file that has the name path afterwards: the previous
// holder may have removed or replaced the file while the caller waited.
func lockNamed(path string, flags int, take func(*flock.Flock) error) (*Held, error) {
	for {
		lock := flock.New(path, flock.SetFlag(os.O_RDONLY|unix.O_NOFOLLOW|flags), flock.SetPermissions(0o600))
		if err := take(lock); err != nil {
			return nil, err
		}
		locked, err := lock.Stat()
		if err != nil {
			return nil, errors.Join(err, lock.Unlock())
		}
		if named, err := os.Lstat(path); err == nil && os.SameFile(locked, named) {
			return &Held{lock}, nil
		}
		if err := lock.Unlock(); err != nil {
			return nil, err
		}
	}
}

func try(lock *flock.Flock) error {
	ours, err := lock.TryLock()
	if err == nil && !ours {
		return lockedError(lock)
	}
	return err
}

func lockedError(lock *flock.Flock) error {
	return fmt.Errorf("%w on %s; `lslocks` shows which", ErrLocked, lock.Path())
}

// wait waits in the kernel, which serves waiters in order. That cannot be cancelled: if
// ctx ends first, the goroutine releases the lock as soon as it gets it.
func wait(ctx context.Context, lock *flock.Flock) error {
	if err := try(lock); !errors.Is(err, ErrLocked) {
		return err
	}
	taken := make(chan error)
	go func() {
		err := lock.Lock()
		select {
		case taken <- err:
		case <-ctx.Done():
			_ = lock.Unlock()
		}
	}()
	select {
	case err := <-taken:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w; %w", context.Cause(ctx), lockedError(lock))
	}
}
