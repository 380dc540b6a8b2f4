package controller

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A traced is a program whose system calls the test watches, to kill it before one of them. Programs
// that it starts are not watched.
type traced struct {
	pid   int
	dir   string // a step is a system call that changes a file here, or starts a program
	steps int
}

// runUntil runs a program and kills it and its children just before its step n, counted from 1. It
// reports whether the program has ended before.
func runUntil(t *testing.T, n int, dir string, env []string, line ...string) (over bool) {
	t.Helper()
	runtime.LockOSThread() // only the thread that has started it may trace it
	defer runtime.UnlockOSThread()
	said := filepath.Join(t.TempDir(), "said")
	p, err := startTraced(dir, said, env, line)
	if err != nil {
		t.Fatal(err)
	}
	status, err := p.until(n)
	if err == nil && status.Exited() && status.ExitStatus() != 0 {
		text, _ := os.ReadFile(said)
		err = fmt.Errorf("it exits with %d: %s", status.ExitStatus(), text)
	}
	if err != nil {
		t.Fatalf("%s until step %d: %v", strings.Join(line, " "), n, err)
	}
	return status.Exited()
}

func startTraced(dir, said string, env, line []string) (*traced, error) {
	out, err := os.Create(said)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	pid, err := syscall.ForkExec(line[0], line, &syscall.ProcAttr{
		Env: env, Files: []uintptr{out.Fd(), out.Fd(), out.Fd()},
		Sys: &syscall.SysProcAttr{Ptrace: true, Setpgid: true, Pdeathsig: syscall.SIGKILL},
	})
	if err != nil {
		return nil, err
	}
	p := &traced{pid: pid, dir: dir}
	var status unix.WaitStatus
	if _, err := unix.Wait4(pid, &status, unix.WALL, nil); err != nil {
		return nil, err
	}
	err = unix.PtraceSetOptions(pid, unix.PTRACE_O_TRACESYSGOOD|unix.PTRACE_O_TRACECLONE|unix.PTRACE_O_EXITKILL)
	return p, errors.Join(err, unix.PtraceSyscall(pid, 0))
}

// until returns how the program has ended.
func (p *traced) until(n int) (unix.WaitStatus, error) {
	for {
		var status unix.WaitStatus
		tid, err := unix.Wait4(-p.pid, &status, unix.WALL, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return status, err
		case status.Exited() || status.Signaled():
			if tid == p.pid {
				return status, nil
			}
			continue
		}
		if status.StopSignal() == unix.SIGTRAP|0x80 && p.steps < n && p.atStep(tid) {
			if p.steps++; p.steps == n {
				err = unix.Kill(-p.pid, unix.SIGKILL)
			}
		}
		if err = errors.Join(err, p.resume(tid, status)); err != nil {
			return status, err
		}
	}
}

// resume lets a thread go on, with the signal that it was to get. Other stops are system calls, and
// the first ones of new threads.
func (p *traced) resume(tid int, status unix.WaitStatus) error {
	signal := int(status.StopSignal())
	switch unix.Signal(signal) {
	case unix.SIGTRAP | 0x80, unix.SIGTRAP, unix.SIGSTOP:
		signal = 0
	}
	if err := unix.PtraceSyscall(tid, signal); !errors.Is(err, unix.ESRCH) { // it has been killed
		return err
	}
	return nil
}

// atStep reports whether a thread is about to take a step. The structure is that of
// PTRACE_GET_SYSCALL_INFO in linux/ptrace.h.
func (p *traced) atStep(tid int) bool {
	const get, entry = 0x420e, 1
	var info struct {
		op     uint8
		_      [3]uint8
		arch   uint32
		ip, sp uint64
		number uint64
		args   [6]uint64
		_      [2]uint64
	}
	if _, _, e := unix.RawSyscall6(unix.SYS_PTRACE, get, uintptr(tid), unsafe.Sizeof(info), uintptr(unsafe.Pointer(&info)), 0, 0); e != 0 || info.op != entry {
		return false
	}
	switch info.number {
	case unix.SYS_PIPE2, unix.SYS_RENAMEAT, unix.SYS_LINKAT, unix.SYS_UNLINKAT, unix.SYS_EXIT_GROUP:
		return true // os/exec makes a pipe first
	case unix.SYS_OPENAT:
		return info.args[2]&unix.O_CREAT != 0
	case unix.SYS_WRITE, unix.SYS_PWRITE64, unix.SYS_FTRUNCATE, unix.SYS_FSYNC, unix.SYS_FDATASYNC:
		file, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%d", p.pid, info.args[0]))
		return err == nil && strings.HasPrefix(file, p.dir)
	}
	return false
}
