package sriov

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/slurm-v/slurm-v/internal/process"
)

// End kills the processes that run entirely as uid and have the file open. Other
// processes are spared: the file's owner could have passed a descriptor to a daemon.
func (kernel) End(ctx context.Context, path string, uid uint32) error {
	var file unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, path, 0, unix.STATX_INO, &file); err != nil {
		return err
	}
	dirs, err := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		if ctx.Err() != nil {
			return errors.Join(err, context.Cause(ctx))
		}
		if runsAs(dir, uid) && hasOpen(ctx, dir, file) {
			err = errors.Join(err, kill(dir, uid))
		}
	}
	return err
}

// runsAs reports whether all user IDs of the process are uid.
func runsAs(dir string, uid uint32) bool {
	status, _ := os.ReadFile(filepath.Join(dir, "status"))
	want := strconv.FormatUint(uint64(uid), 10)
	return slices.Equal(process.ParseStatus(string(status))["Uid"], []string{want, want, want, want})
}

// hasOpen reports whether a thread of the process has the file open: threads can have
// descriptors of their own. It asks the kernel only (AT_STATX_DONT_SYNC), since a file
// server might not answer.
func hasOpen(ctx context.Context, dir string, file unix.Statx_t) bool {
	tables, _ := filepath.Glob(filepath.Join(dir, "task", "*", "fd"))
	for _, table := range tables {
		fds, _ := os.ReadDir(table)
		for _, fd := range fds {
			var is unix.Statx_t
			err := unix.Statx(unix.AT_FDCWD, filepath.Join(table, fd.Name()), unix.AT_STATX_DONT_SYNC, unix.STATX_INO, &is)
			if err == nil && is.Ino == file.Ino && is.Dev_major == file.Dev_major && is.Dev_minor == file.Dev_minor {
				return true
			}
			if ctx.Err() != nil {
				return false
			}
		}
	}
	return false
}

// kill kills the process unless its ID belongs to another user's process by now.
func kill(dir string, uid uint32) error {
	pid, err := strconv.Atoi(filepath.Base(dir))
	if err != nil {
		return err
	}
	return process.SendKill(pid, func() bool { return runsAs(dir, uid) })
}
