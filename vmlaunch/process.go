package vmlaunch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// emulators returns the pids of the QEMU processes below proc by the UUIDs of their
// domains. They are found by what the kernel says of them, not by a pid that was
// written down: a crash can come before the writing.
func emulators(proc string) (map[string][]int, error) {
	dirs, err := filepath.Glob(filepath.Join(proc, "[0-9]*"))
	if err != nil {
		return nil, err
	}
	pids := map[string][]int{}
	for _, dir := range dirs {
		pid, err := strconv.Atoi(filepath.Base(dir))
		if uuid := domainOf(dir); err == nil && uuid != "" {
			pids[uuid] = append(pids[uuid], pid)
		}
	}
	return pids, nil
}

// domainOf is the UUID that a process got as the word after -uuid, "" if none.
func domainOf(dir string) string {
	line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
	_, rest, _ := bytes.Cut(line, []byte("\x00-uuid\x00"))
	uuid, _, _ := bytes.Cut(rest, []byte{0})
	return string(uuid)
}

// demand is how long the threads of the process with that directory below /proc have run,
// and waited to: the first two numbers of schedstat, in nanoseconds (Linux,
// Documentation/scheduler/sched-stats.rst). Threads that have ended are left out.
func demand(dir string) (sum time.Duration, err error) {
	files, err := filepath.Glob(filepath.Join(dir, "task", "*", "schedstat"))
	if err == nil && len(files) == 0 {
		err = fs.ErrNotExist
	}
	for _, file := range files {
		var ran, waited time.Duration
		text, _ := os.ReadFile(file)
		_, _ = fmt.Sscan(string(text), &ran, &waited)
		sum += ran + waited
	}
	return sum, err
}

// killDomains ends every QEMU process of the domains, at once, and tells ended of
// each domain that has none any more.
func killDomains(ctx context.Context, uuids []string, ended func(uuid string) error) error {
	running, err := emulators("/proc")
	if err != nil {
		return err
	}
	failed := make([]error, len(uuids))
	var each sync.WaitGroup
	for i, uuid := range uuids {
		each.Go(func() {
			if failed[i] = killDomain(ctx, uuid, running[uuid]); failed[i] == nil {
				failed[i] = ended(uuid)
			}
		})
	}
	each.Wait()
	return errors.Join(failed...)
}

func killDomain(ctx context.Context, uuid string, pids []int) (err error) {
	for _, pid := range pids {
		err = errors.Join(err, killProcess(ctx, pid, func() bool {
			return domainOf(filepath.Join("/proc", strconv.Itoa(pid))) == uuid
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
