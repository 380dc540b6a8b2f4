package owner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// Reasons for not opening a file, besides errors of the system.
var (
	ErrDirectory    = errors.New("is a directory")
	ErrNotRegular   = errors.New("is not a regular file")
	ErrNotDirectory = errors.New("is not a directory")
	ErrKernelFile   = errors.New("is the kernel's own (as in /proc and /sys), not a stored file")
)

// Open opens a regular file for reading, with the owner's rights, and also returns its
// path without symbolic links. It does not follow links of the kernel, such as
// /proc/PID/cwd. If ctx is done first (a file server may not answer), Open abandons the
// process that opens.
//
// The error is one of the above, or an [*fs.PathError]. Its Op is "open" if the file
// itself cannot be opened; otherwise it names what could not be passed on the way.
func (o Owner) Open(ctx context.Context, path string) (file *os.File, real string, err error) {
	return o.open(ctx, regular, path)
}

// OpenDir finds a directory like Open, but for passing it only (O_PATH).
func (o Owner) OpenDir(ctx context.Context, path string) (dir *os.File, err error) {
	dir, _, err = o.open(ctx, directory, path)
	return dir, err
}

func (o Owner) open(ctx context.Context, want kind, path string) (file *os.File, real string, err error) {
	ours, theirs, err := socketPair("opener")
	if err != nil {
		return nil, "", err
	}
	defer ours.Close()
	cmd := o.Command(ctx, "/proc/self/exe", string(want), path)
	cmd.Args[0], cmd.Env, cmd.ExtraFiles = openerName, []string{}, []*os.File{theirs}
	err = cmd.Start()
	theirs.Close()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return nil, "", fmt.Errorf("become %v: %w", o, err)
	}
	go func() { _ = cmd.Wait() }()
	defer context.AfterFunc(ctx, func() { _ = ours.Close() })()
	fd, err := receive(ours, path)
	if err == nil {
		real, err = examine(fd, want)
	}
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, "", err
	}
	return os.NewFile(uintptr(fd), real), real, nil
}

// socketPair returns the two ends of a connection that preserves message boundaries. Ours
// does not block.
func socketPair(name string) (ours, theirs *os.File, err error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("make a socket: %w", err)
	}
	// Non-blocking, so that closing it ends a read that waits.
	_ = unix.SetNonblock(fds[0], true)
	return os.NewFile(uintptr(fds[0]), name), os.NewFile(uintptr(fds[1]), "other end of "+name), nil
}

// receive reads the answer of the process that opens path.
func receive(conn *os.File, path string) (fd int, err error) {
	answer, rights := make([]byte, maxAnswer), make([]byte, unix.CmsgSpace(4))
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	var n, rightsLen int
	readErr := raw.Read(func(fd uintptr) bool {
		n, rightsLen, _, _, err = unix.Recvmsg(int(fd), answer, rights, unix.MSG_CMSG_CLOEXEC)
		return !errors.Is(err, unix.EAGAIN)
	})
	if err = errors.Join(readErr, err); err != nil {
		return -1, fmt.Errorf("open %q: %w", path, err)
	}
	fd, err = passed(rights[:rightsLen])
	switch {
	case err != nil || fd >= 0:
		return fd, err
	case n == 0:
		return -1, fmt.Errorf("open %q: the process that was to open it has ended: %w", path, io.ErrUnexpectedEOF)
	}
	return -1, readRefusal(answer[:n])
}

// passed returns the descriptor in the rights of a received message, or -1.
func passed(rights []byte) (int, error) {
	messages, err := unix.ParseSocketControlMessage(rights)
	if err != nil || len(messages) == 0 {
		return -1, err
	}
	fds, err := unix.ParseUnixRights(&messages[0])
	if err != nil || len(fds) == 0 {
		return -1, err
	}
	return fds[0], nil
}

// examine checks the received descriptor: the owner could have made the process send
// another one. It returns the file's path, from the kernel.
func examine(fd int, want kind) (path string, err error) {
	var system unix.Statfs_t
	var is unix.Stat_t
	if err := errors.Join(unix.Fstatfs(fd, &system), unix.Fstat(fd, &is)); err != nil {
		return "", err
	}
	if kernelFiles[system.Type] {
		return "", ErrKernelFile
	}
	if err := want.check(is.Mode); err != nil {
		return "", err
	}
	if path, err = os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd)); err != nil {
		return "", err
	}
	if !filepath.IsAbs(path) || strings.HasSuffix(path, " (deleted)") {
		return "", &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
	}
	return path, nil
}

// A kind of file is what a caller wants to open.
type kind string

const (
	regular   kind = "file"
	directory kind = "directory"
)

// check compares the kind with the mode of what was found.
func (k kind) check(mode uint32) error {
	is := mode & unix.S_IFMT
	switch {
	case k == directory && is != unix.S_IFDIR:
		return ErrNotDirectory
	case k == directory || is == unix.S_IFREG:
		return nil
	case is == unix.S_IFDIR:
		return ErrDirectory
	}
	return ErrNotRegular
}

// kernelFiles are the file systems whose files the kernel generates. Their content
// depends on the reader, which is root here.
var kernelFiles = map[int64]bool{
	unix.PROC_SUPER_MAGIC: true, unix.SYSFS_MAGIC: true, unix.DEBUGFS_MAGIC: true, unix.TRACEFS_MAGIC: true,
	unix.SECURITYFS_MAGIC: true, unix.SELINUX_MAGIC: true, unix.SMACK_MAGIC: true, unix.CGROUP_SUPER_MAGIC: true,
	unix.CGROUP2_SUPER_MAGIC: true, unix.EFIVARFS_MAGIC: true, unix.BPF_FS_MAGIC: true, unix.NSFS_MAGIC: true,
	unix.BINFMTFS_MAGIC: true, unix.PSTOREFS_MAGIC: true, unix.RDTGROUP_SUPER_MAGIC: true, configfsMagic: true,
}

const configfsMagic = 0x62656570 // Linux, fs/configfs/mount.c
