package ledger

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// openLocked opens the file that has the name path when it has the lock: an administrator
// may have put another one there while it waited. bbolt's own attempt to lock it is then
// served at once. bbolt would wait in pauses of 50 ms, longer than a reservation takes.
func openLocked(ctx context.Context, path string) (*os.File, error) {
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOFOLLOW, 0)
		if err != nil {
			return nil, err
		}
		if err := lock(ctx, f); err != nil {
			return nil, err
		}
		locked, err := f.Stat()
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		if named, err := os.Stat(path); err == nil && os.SameFile(locked, named) {
			return f, empty(f, locked.Size())
		}
		f.Close()
	}
}

// empty refuses a file without content, which bbolt would take for a new one. Ledgers are
// whole from the beginning.
func empty(f *os.File, size int64) error {
	if size > 0 {
		return nil
	}
	return errors.Join(damaged(errors.New("it is empty")), f.Close())
}

// lock waits in the kernel, which serves waiters in order. That cannot be cancelled: if ctx
// ends first, the file is closed as soon as it has the lock.
func lock(ctx context.Context, f *os.File) error {
	err := flock(f, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil {
		return nil
	}
	if !errors.Is(err, unix.EWOULDBLOCK) {
		return errors.Join(fmt.Errorf("lock %s: %w", f.Name(), err), f.Close())
	}
	inode := inodeOf(f)
	taken := make(chan error)
	go func() {
		err := flock(f, unix.LOCK_EX)
		select {
		case taken <- err:
		case <-ctx.Done():
			f.Close()
		}
	}()
	select {
	case err := <-taken:
		if err != nil {
			f.Close()
		}
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for %s, which %s has open: %w", f.Name(), holder(inode), context.Cause(ctx))
	}
}

func flock(f *os.File, how int) error {
	for {
		if err := unix.Flock(int(f.Fd()), how); !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// inodeOf returns a file's "MAJOR:MINOR:INODE" as /proc/locks has it; "" if it is unknown.
func inodeOf(f *os.File) string {
	var stat unix.Stat_t
	if unix.Fstat(int(f.Fd()), &stat) != nil {
		return ""
	}
	return fmt.Sprintf("%02x:%02x:%d", unix.Major(stat.Dev), unix.Minor(stat.Dev), stat.Ino)
}

// holder names the process that has locked a file.
func holder(inode string) string {
	locks, err := os.Open("/proc/locks")
	if err != nil {
		return "another process"
	}
	defer locks.Close()
	pid := lockHolder(locks, inode)
	if pid == "" {
		return "another process, perhaps of another host,"
	}
	command, _ := os.ReadFile("/proc/" + pid + "/comm")
	return fmt.Sprintf("process %s (%s)", pid, strings.TrimSpace(string(command)))
}

// lockHolder finds the process in the text of /proc/locks (proc_locks(5)) that has the flock
// on an inode, "MAJOR:MINOR:INODE"; "" if there is none.
func lockHolder(locks io.Reader, inode string) string {
	for lines := bufio.NewScanner(locks); lines.Scan(); {
		f := strings.Fields(lines.Text())
		if len(f) >= 6 && f[1] == "FLOCK" && f[5] == inode && f[4] != "-1" && f[4] != "0" {
			return f[4]
		}
	}
	return ""
}
