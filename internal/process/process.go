// Package process ends processes that are known only by their ids, and reads their
// command lines.
package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// Kill kills pid if still says that it is the process that the caller means. It returns
// when the process has ended.
func Kill(ctx context.Context, pid int, still func() bool) error {
	return kill(pid, still, func(fd int) error { return wait(ctx, fd, pid) })
}

// SendKill is [Kill] without waiting for the end of the process.
func SendKill(pid int, still func() bool) error {
	return kill(pid, still, func(int) error { return nil })
}

// kill opens a descriptor of the process before it calls still: from then on the kernel
// cannot reuse the id. After the kill it calls then with the descriptor.
func kill(pid int, still func() bool, then func(fd int) error) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if errors.Is(err, unix.ESRCH) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("open process %d: %w", pid, err)
	}
	defer unix.Close(fd)
	if !still() {
		return nil
	}
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("kill process %d: %w", pid, err)
	}
	return then(fd)
}

// wait returns when the process of fd has ended.
func wait(ctx context.Context, fd, pid int) error {
	for ctx.Err() == nil {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 100)
		if n > 0 {
			return nil
		}
		if err != nil && !errors.Is(err, unix.EINTR) {
			return fmt.Errorf("wait for process %d: %w", pid, err)
		}
	}
	return fmt.Errorf("wait for process %d to end: %w", pid, ctx.Err())
}

// Argument returns word i of the command line of a process, or "".
func Argument(pid, i int) string {
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	words := bytes.Split(line, []byte{0})
	if err != nil || i >= len(words) {
		return ""
	}
	return string(words[i])
}
