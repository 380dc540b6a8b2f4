package hypervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/slurm-v/slurm-v/internal/process"
)

// emulators returns the pids of the QEMU processes below proc, by the UUIDs of their
// domains. It reads their command lines and does not rely on a pid file, because a crash
// can come before such a file is written.
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

// domainOf returns the word after -uuid on a process's command line, "" if there is none.
func domainOf(dir string) string {
	line, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
	_, rest, _ := bytes.Cut(line, []byte("\x00-uuid\x00"))
	uuid, _, _ := bytes.Cut(rest, []byte{0})
	return string(uuid)
}

// demand returns how long the threads of a process have run, and have waited for a CPU: the
// first two numbers of schedstat, in nanoseconds (Linux,
// Documentation/scheduler/sched-stats.rst). dir is the process's directory below /proc.
// Ended threads do not count.
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

// threads returns, for each thread of the process with that directory below /proc, its name,
// its state (R runs, S sleeps), the kernel function in which it waits (0 if in none), and how
// long it has run: "CPU 0/TCG R 0 12.3s; ...". See proc(5).
func threads(dir string) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "task", "*"))
	if err == nil && len(files) == 0 {
		err = fs.ErrNotExist
	}
	lines := make([]string, len(files))
	for i, file := range files {
		lines[i] = thread(file)
	}
	return strings.Join(lines, "; "), err
}

// thread returns what [threads] says of one.
func thread(dir string) string {
	stat, _ := os.ReadFile(filepath.Join(dir, "stat"))
	wchan, _ := os.ReadFile(filepath.Join(dir, "wchan"))
	schedstat, _ := os.ReadFile(filepath.Join(dir, "schedstat"))
	var ran time.Duration
	_, _ = fmt.Sscan(string(schedstat), &ran)
	_, named, _ := strings.Cut(string(stat), "(")
	name, rest, _ := strings.Cut(named, ") ")
	state, _, _ := strings.Cut(rest, " ")
	return fmt.Sprintf("%s %s %s %.1fs", name, state, wchan, ran.Seconds())
}

// Kill ends every QEMU process of the domains, all at once. It calls ended for each domain
// whose processes are gone.
func Kill(ctx context.Context, uuids []string, ended func(uuid string) error) error {
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
		err = errors.Join(err, process.Kill(ctx, pid, func() bool {
			return domainOf(filepath.Join("/proc", strconv.Itoa(pid))) == uuid
		}))
	}
	return err
}
