package hypervisor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/slurm-v/slurm-v/internal/concurrently"
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
// Ended threads do not count. Kernels without CONFIG_SCHEDSTATS have zeros or no such file: that is an error.
func demand(dir string) (sum time.Duration, err error) {
	tasks, err := tasksOf(dir)
	for _, task := range tasks {
		ran, waited := schedstat(task)
		sum += ran + waited
	}
	if err == nil && sum == 0 {
		err = errors.New("this kernel does not tell how long threads have run (CONFIG_SCHEDSTATS)")
	}
	return sum, err
}

// tasksOf returns the directories below /proc of the threads of a process.
func tasksOf(dir string) ([]string, error) {
	tasks, err := filepath.Glob(filepath.Join(dir, "task", "*"))
	if err == nil && len(tasks) == 0 {
		err = fs.ErrNotExist
	}
	return tasks, err
}

func schedstat(task string) (ran, waited time.Duration) {
	text, _ := os.ReadFile(filepath.Join(task, "schedstat"))
	_, _ = fmt.Sscan(string(text), &ran, &waited)
	return ran, waited
}

// threads returns, for each thread of the process with that directory below /proc, its name,
// its state (R runs, S sleeps), the kernel function in which it waits (0 if in none), and how
// long it has run: "CPU 0/TCG R 0 12.3s; ...". See proc(5).
func threads(dir string) (string, error) {
	tasks, err := tasksOf(dir)
	lines := make([]string, len(tasks))
	for i, task := range tasks {
		text, _ := os.ReadFile(filepath.Join(task, "status"))
		status := process.ParseStatus(string(text))
		wchan, _ := os.ReadFile(filepath.Join(task, "wchan"))
		ran, _ := schedstat(task)
		lines[i] = fmt.Sprintf("%s %.1s %s %.1fs", strings.Join(status["Name"], " "), strings.Join(status["State"], " "), wchan, ran.Seconds())
	}
	return strings.Join(lines, "; "), err
}

// AwaitEnd waits until another program has ended every QEMU process of the domains.
func AwaitEnd(ctx context.Context, uuids []string) error {
	for len(uuids) > 0 {
		running, err := emulators("/proc")
		if err != nil || !slices.ContainsFunc(uuids, func(uuid string) bool { return len(running[uuid]) > 0 }) {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(endEvery):
		}
	}
	return nil
}

// endEvery is the pause between two looks for processes that another program ends.
const endEvery = 300 * time.Millisecond

// Kill ends every QEMU process of the domains, all at once. It calls ended for each domain
// whose processes are gone.
func Kill(ctx context.Context, uuids []string, ended func(uuid string) error) error {
	running, err := emulators("/proc")
	if err != nil {
		return err
	}
	return errors.Join(concurrently.Each(uuids, len(uuids), func(uuid string) error {
		if err := killDomain(ctx, uuid, running[uuid]); err != nil {
			return err
		}
		return ended(uuid)
	})...)
}

func killDomain(ctx context.Context, uuid string, pids []int) (err error) {
	for _, pid := range pids {
		err = errors.Join(err, process.Kill(ctx, pid, func() bool {
			return domainOf(filepath.Join("/proc", strconv.Itoa(pid))) == uuid
		}))
	}
	return err
}

// IsProcess reports whether the process is the VM's QEMU: the one that libvirt has started, with the VM's UUID on its command
// line. The command line alone proves nothing, because every user can read the UUID there and start a process with the same
// words. The pid file alone may be of a QEMU that has ended, whose number another process has now.
func (d *Domain) IsProcess(pid int) bool {
	dir, err := d.Process()
	return err == nil && dir == filepath.Join("/proc", strconv.Itoa(pid)) && domainOf(dir) == d.uuid
}
