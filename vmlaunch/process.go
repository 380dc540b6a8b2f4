package vmlaunch

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

// emulators returns the pids of the QEMU processes below proc that run the
// domain with this UUID. They are found by what the kernel says of them, not by
// a pid that was written down: a crash can come before the writing.
func emulators(proc, uuid string) ([]int, error) {
	dirs, err := filepath.Glob(filepath.Join(proc, "[0-9]*"))
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, dir := range dirs {
		if pid, err := strconv.Atoi(filepath.Base(dir)); err == nil && runsDomain(dir, uuid) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

func runsDomain(dir, uuid string) bool {
	line, err := os.ReadFile(filepath.Join(dir, "cmdline"))
	return err == nil && bytes.Contains(line, []byte("\x00-uuid\x00"+uuid+"\x00"))
}

// killDomain ends every QEMU process of the domain and waits until it is gone.
func killDomain(ctx context.Context, uuid string) error {
	pids, err := emulators("/proc", uuid)
	for _, pid := range pids {
		err = errors.Join(err, killProcess(ctx, pid, func() bool {
			return runsDomain(filepath.Join("/proc", strconv.Itoa(pid)), uuid)
		}))
	}
	return err
}

// killProcess kills pid if it is still the process that the caller means, which
// is asked once the process is held by a descriptor and its number cannot be
// reused any more.
func killProcess(ctx context.Context, pid int, still func() bool) error {
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
	return waitProcess(ctx, fd, pid)
}

// waitProcess returns when the process of fd has ended.
func waitProcess(ctx context.Context, fd, pid int) error {
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

// argument returns word i of the command line of a process, "" if there is none.
func argument(pid, i int) string {
	line, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "cmdline"))
	words := bytes.Split(line, []byte{0})
	if err != nil || i >= len(words) {
		return ""
	}
	return string(words[i])
}
