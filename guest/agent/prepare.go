package agent

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/guest"
)

// A base is a file system that programs and the agent need, and that a small init may not
// have mounted. If something is mounted at its path already, that counts as the base.
type base struct{ path, fstype, data string }

var bases = []base{
	{"/proc", "proc", ""},
	{"/sys", "sysfs", ""},
	{"/dev", "devtmpfs", "mode=755"},
	{"/dev/pts", "devpts", "gid=5,mode=620,ptmxmode=666"},
	{"/dev/shm", "tmpfs", "mode=1777"},
	{"/run", "tmpfs", "mode=755"},
	{"/sys/fs/cgroup", "cgroup2", ""},
}

const toolsPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// prepare does what a small init has left undone. It only logs failures, because the VM may
// not need what is missing.
func prepare(log *slog.Logger) {
	if os.Getenv("PATH") == "" {
		_ = os.Setenv("PATH", toolsPath)
	}
	for _, b := range bases {
		if err := b.mount(); err != nil {
			log.Warn("file system not mounted", "path", b.path, "err", err)
		}
	}
	// When the VM is short of memory, a program should die and not the agent.
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte("-1000"), 0); err != nil {
		log.Warn("the agent may be killed when memory is short", "err", err)
	}
	if err := guest.SlackTimers(); err != nil {
		log.Warn("the agent's timers wake the VM up more often than necessary", "err", err)
	}
	raiseFileLimit(log)
}

func (b base) mount() error {
	if err := os.Mkdir(b.path, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	if mounted, err := isMountPoint(b.path); mounted || err != nil {
		return err
	}
	return unix.Mount(b.fstype, b.path, b.fstype, unix.MS_NOSUID, b.data)
}

// isMountPoint reports whether a directory lies on another file system than its parent.
func isMountPoint(path string) (bool, error) {
	var at, in unix.Stat_t
	if err := unix.Lstat(path, &at); err != nil {
		return false, err
	}
	if err := unix.Lstat(filepath.Dir(path), &in); err != nil {
		return false, err
	}
	return at.Dev != in.Dev, nil
}

// raiseFileLimit lets the agent serve many programs, each of which takes half a
// dozen descriptors.
func raiseFileLimit(log *slog.Logger) {
	const enough = 1 << 16
	var l unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &l); err != nil || l.Max >= enough {
		return
	}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: enough, Max: enough}); err != nil {
		log.Warn("limit of open files not raised", "err", err)
	}
}
