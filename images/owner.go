package images

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
	"unicode"
	"unsafe"

	"golang.org/x/sys/unix"
)

// An Owner is the user with whose rights images are opened.
type Owner struct {
	Name   string // for messages; "" is "user UID"
	UID    uint32
	GID    uint32
	Groups []uint32
}

func (o Owner) String() string {
	if o.Name == "" {
		return fmt.Sprintf("user %d", o.UID)
	}
	return "user " + o.Name
}

// do runs f with the owner's rights on files, on a thread of its own that ends
// with it. If ctx is done first (a file server may not answer), f is left alone.
func (o Owner) do(ctx context.Context, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread is not used again
		err := o.assume()
		if err == nil {
			err = f()
		}
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// assume gives the calling thread the owner's identity towards file systems, NFS
// servers included. With the change from root the kernel also takes away the
// capabilities that pass over permissions. The raw calls change one thread; those
// of package unix would change all.
func (o Owner) assume() error {
	if os.Geteuid() != 0 {
		return nil // there is only one user to be
	}
	groups := unsafe.Pointer(unsafe.SliceData(o.Groups))
	if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, uintptr(len(o.Groups)), uintptr(groups), 0); errno != 0 {
		return fmt.Errorf("take the groups of %v: %w", o, errno)
	}
	_, _, _ = unix.RawSyscall(unix.SYS_SETFSGID, uintptr(o.GID), 0, 0)
	_, _, _ = unix.RawSyscall(unix.SYS_SETFSUID, uintptr(o.UID), 0, 0)
	// These two report no errors; asked for an id that does not exist they say
	// what is in force.
	const ask = ^uintptr(0)
	gid, _, _ := unix.RawSyscall(unix.SYS_SETFSGID, ask, 0, 0)
	uid, _, _ := unix.RawSyscall(unix.SYS_SETFSUID, ask, 0, 0)
	if uint32(gid) != o.GID || uint32(uid) != o.UID {
		return fmt.Errorf("the rights of %v cannot be taken", o)
	}
	return nil
}

// open opens a regular file for reading and returns also its path without
// symbolic links. what it is goes into messages. The error is an [*Error] that a user understands.
func (o Owner) open(ctx context.Context, what, path string) (*os.File, string, error) {
	type opened struct {
		file *os.File
		path string
	}
	result := make(chan opened, 1)
	err := o.do(ctx, func() error {
		file, real, err := openRegular(path)
		if err == nil {
			result <- opened{file, real}
		}
		return err
	})
	if err != nil {
		return nil, "", o.explain(what, path, err)
	}
	r := <-result
	return r.file, r.path, nil
}

var (
	errDirectory  = errors.New("is a directory")
	errNotRegular = errors.New("is not a regular file")
)

func openRegular(path string) (*os.File, string, error) {
	real, err := filepath.EvalSymlinks(path)
	if err != nil {
		// EvalSymlinks reports a circle with an error that cannot be recognised.
		if _, other := os.Stat(path); errors.Is(other, unix.ELOOP) {
			err = other
		}
		return nil, "", err
	}
	// Opening alone can do something to a device, or wait for ever. The file may be
	// another one by then, hence O_NONBLOCK and the second look.
	info, err := os.Lstat(real)
	if err == nil {
		err = checkRegular(info)
	}
	if err != nil {
		return nil, "", err
	}
	file, err := os.OpenFile(real, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return nil, "", err
	}
	if info, err = file.Stat(); err == nil {
		err = checkRegular(info)
	}
	if err != nil {
		return nil, "", errors.Join(err, file.Close())
	}
	return file, real, nil
}

func checkRegular(info fs.FileInfo) error {
	switch {
	case info.IsDir():
		return errDirectory
	case !info.Mode().IsRegular():
		return errNotRegular
	}
	return nil
}

// explain makes a sentence of what openRegular returned.
func (o Owner) explain(what, path string, err error) error {
	var refused *fs.PathError
	e := &Error{What: what, Path: path, Err: err}
	switch {
	case errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ENOTDIR):
		e.Reason = "does not exist"
	case errors.Is(err, unix.ELOOP):
		e.Reason = "is a symbolic link that leads in a circle"
	case errors.Is(err, fs.ErrPermission) && errors.As(err, &refused) && refused.Op == "open":
		e.Reason = fmt.Sprintf("is not readable by %v", o)
	case errors.Is(err, fs.ErrPermission) && errors.As(err, &refused):
		e.Reason = fmt.Sprintf("is not readable by %v, who may not enter the directory %s", o, printable(filepath.Dir(refused.Path)))
	case errors.Is(err, errDirectory) || errors.Is(err, errNotRegular):
		e.Reason = err.Error()
	case errors.As(err, &refused):
		e.Reason = "cannot be opened: " + refused.Err.Error()
	default:
		return fmt.Errorf("open %s %s: %w", what, printable(path), err)
	}
	return e
}

// createFor makes an empty file that belongs to the owner. Its directory may be
// his, so nothing that lies there already is opened.
func createFor(path string, as Owner) (*os.File, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	if err := file.Chown(int(as.UID), int(as.GID)); err != nil {
		return nil, errors.Join(err, file.Close(), os.Remove(path))
	}
	return file, nil
}

// What qemu-img may use. An image can be made so that it needs hours and any
// amount of memory; these are OpenStack Nova's limits for the same purpose.
const (
	qemuImgMemory = "1073741824" // bytes of address space
	qemuImgCPU    = "30"         // seconds
	qemuImgTime   = 2 * time.Minute
)

// qemuImgDelay is how long the end of its output is awaited once it has ended. The
// owner can have another process hold it open. So does every process that is being
// started at that moment, until it has become its program: many VMs, few cores.
const qemuImgDelay = 20 * time.Second

// checkWithQEMU lets QEMU itself open the image and all below it.
func (o Owner) checkWithQEMU(ctx context.Context, image Layer) error {
	err := o.qemuImg(ctx, "info", "--output=json", "--backing-chain", "-U", "-f", image.Format, image.Path)
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		return &Error{Path: image.Path, Reason: "cannot be opened by QEMU: " + err.Error(), Err: err}
	}
	return err
}

// qemuImg runs qemu-img as the owner. What it prints is not used: the owner can
// meddle with a process of his own.
func (o Owner) qemuImg(ctx context.Context, args ...string) error {
	ctx, cancel := context.WithTimeout(ctx, qemuImgTime)
	defer cancel()
	program, err := exec.LookPath("qemu-img")
	if err != nil {
		return fmt.Errorf("qemu-img is not installed on this node: %w", err)
	}
	args = append([]string{"--as=" + qemuImgMemory, "--cpu=" + qemuImgCPU, "--core=0", "--", program}, args...)
	cmd := exec.CommandContext(ctx, "prlimit", args...)
	var stderr tail
	cmd.Stderr = &stderr
	cmd.Dir, cmd.Env = "/", []string{"PATH=" + os.Getenv("PATH"), "LC_ALL=C"}
	cmd.WaitDelay = qemuImgDelay
	if os.Geteuid() == 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: o.UID, Gid: o.GID, Groups: o.Groups}}
	}
	err = cmd.Run()
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("qemu-img: %w", context.Cause(ctx))
	case stderr.line() != "":
		return fmt.Errorf("%s (%w)", stderr.line(), err)
	}
	return fmt.Errorf("qemu-img: %w", err)
}

// A tail keeps the end of what a program writes.
type tail struct{ text []byte }

func (t *tail) Write(p []byte) (int, error) {
	const keep = 4096
	t.text = append(t.text, p...)
	t.text = t.text[max(0, len(t.text)-keep):]
	return len(p), nil
}

// line returns the last line, bounded and without what a terminal would act on.
func (t *tail) line() string {
	lines := bytes.Split(bytes.TrimSpace(t.text), []byte("\n"))
	line := strings.Map(func(r rune) rune {
		if unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, string(lines[len(lines)-1]))
	return line[:min(len(line), 300)]
}
