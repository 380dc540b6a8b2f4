package journal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/slurm-v/slurm-v/internal/durable"
)

// ErrLocked matches every [LockedError].
var ErrLocked = errors.New("journal is in use")

// A LockedError says which process holds a journal's lock.
type LockedError struct{ Holder Holder }

func (e *LockedError) Error() string {
	return fmt.Sprintf("%v by process %d", ErrLocked, e.Holder.PID)
}

// Is reports whether target is [ErrLocked].
func (e *LockedError) Is(target error) bool { return target == ErrLocked }

// A Holder is the process that last had a journal open. Start tells it from a
// later process with the same number. Somebody who has just taken the lock may
// not have signed yet, so before killing a Holder compare with [Holder.Alive].
type Holder struct {
	PID   int    `json:"pid"`
	Start uint64 `json:"start"` // clock ticks since boot, as in /proc/PID/stat
}

// Alive reports whether the process still exists.
func (h Holder) Alive() bool {
	start, err := startTime(h.PID)
	return err == nil && start == h.Start
}

func self() (Holder, error) {
	pid := os.Getpid()
	start, err := startTime(pid)
	return Holder{PID: pid, Start: start}, err
}

// startTime reads the 22nd field of /proc/PID/stat. The second, the name, is in
// brackets and may itself contain spaces and brackets.
func startTime(pid int) (uint64, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 20 {
		return 0, fmt.Errorf("/proc/%d/stat has only %d fields after the name", pid, len(fields))
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// BootID returns the kernel's id of the current boot. A journal whose header has another
// id is older than everything that runs on the node now.
func BootID() (string, error) {
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(id)), err
}

// retry is the interval at which OpenWait tries again. A blocking flock could only be
// cancelled by a signal to its thread.
const retry = 20 * time.Millisecond

// OpenWait is [Open], but waits for the lock until ctx is done; the error is
// then both ctx's cause and [ErrLocked].
func OpenWait(ctx context.Context, state string, id ID) (*Journal, error) {
	for {
		j, err := Open(state, id)
		if !errors.Is(err, ErrLocked) {
			return j, err
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%w: %w", err, context.Cause(ctx))
		case <-time.After(retry):
		}
	}
}

// takeLock takes the lock of a journal. It makes the file if only the directory exists.
func takeLock(path string) (*durable.Held, error) {
	for {
		lock, err := durable.TryLock(path, os.O_CREATE)
		if !errors.Is(err, durable.ErrLocked) {
			return lock, err
		}
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // the previous holder has just removed the file
		}
		if err != nil {
			return nil, err
		}
		c, _ := parse(data)
		return nil, &LockedError{Holder: c.holder}
	}
}
